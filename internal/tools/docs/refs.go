package main

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// What pages refer to beside Go blocks and links: commands with their flags, targets,
// variables, metrics, and names of the code.

var (
	fences   = regexp.MustCompile("(?ms)^```.*?^```")
	inlines  = regexp.MustCompile("`([^`]+)`")
	makes    = regexp.MustCompile(`^(?:[A-Z_]+=\S+ )*make ([a-z][^\n#;&]*)`)
	goRuns   = regexp.MustCompile(`(?:\bcd (\S+) && )?\bgo (test|run)((?: [^\s&;#)>|]+)+)`)
	builds   = regexp.MustCompile(`\bgo build -C (\S+) -o (\S+)`)
	started  = regexp.MustCompile(`(?m)^(?:    |\$ )?((?:\./|bin/)\S+)`)
	works    = regexp.MustCompile(`(?:^| )-work ([a-z0-9_/]+)`)
	patterns = regexp.MustCompile(`-(?:run|bench) ('[^']+'|[A-Z]\w*)`)
	declared = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz|Example)\w+)`)
	longFlag = regexp.MustCompile(`(?:^|[\s(])--([a-z][a-z-]+)`)
	variable = regexp.MustCompile(`\b[A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+\b`)
	metric   = regexp.MustCompile(`\b(?:flightpool|dsql)(?:_[a-z]+){2,}\b|\bdb\.client(?:\.[a-z_]+)+\b(?:\.\*)?`)
	dotted   = regexp.MustCompile(`(?:^|[^\w./-])([A-Za-z]\w*)\.([A-Z]\w*)`)
)

// references holds what pages refer to against the tree.
type references struct {
	root  fs.FS
	files map[string]string   // everything but documents
	words set                 // of it, those that look like variables of the environment, and metrics
	tests map[string][]string // of each folder
	names names
}

func newReferences(root fs.FS) (*references, error) {
	r := &references{root: root, files: map[string]string{}, words: set{}, tests: map[string][]string{}}
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch base := path.Base(name); {
		case err != nil:
			return err
		case d.IsDir() && (base == ".git" || base == ".tools" || base == "node_modules"):
			return fs.SkipDir
		case d.IsDir() || path.Ext(name) == ".md" || path.Dir(name) == "internal/tools/docs" || !d.Type().IsRegular():
			return nil
		case !strings.HasPrefix(name, ".ci/") && base != "Makefile" && !slices.Contains([]string{".go", ".sh", ".yml", ".json"}, path.Ext(name)):
			return nil
		}
		text, err := fs.ReadFile(root, name)
		r.files[name] = string(text)
		if strings.HasSuffix(name, "_test.go") {
			for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
				r.tests[path.Dir(name)] = append(r.tests[path.Dir(name)], m[1])
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, text := range r.files {
		for _, re := range []*regexp.Regexp{variable, metric} {
			for _, word := range re.FindAllString(text, -1) {
				r.words[word] = true
			}
		}
	}
	r.names, err = namesOf(r.files)
	return r, err
}

// faults are the references of a page that lead nowhere.
func (r *references) faults(page, text string) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, page+": "+fmt.Sprintf(format, args...)) }
	prose := fences.ReplaceAllString(text, "")
	var parts []string
	for _, m := range inlines.FindAllStringSubmatch(prose, -1) {
		part := strings.Join(strings.Fields(m[1]), " ")
		parts = append(parts, part)
		for _, d := range dotted.FindAllStringSubmatch(part, -1) {
			if !r.names.has(d[1], d[2]) {
				fault("%s.%s is no name of the code", d[1], d[2])
			}
		}
	}
	for _, block := range fences.FindAllString(text, -1) {
		if !strings.HasPrefix(block, "```go") {
			parts = append(parts, strings.Split(block, "\n")...)
		}
	}
	for _, part := range parts {
		r.checkMake(part, fault)
		r.checkGo(part, fault)
		for _, f := range longFlag.FindAllStringSubmatch(part, -1) {
			if !r.isFlag(page, f[1]) {
				fault("--%s is no flag", f[1])
			}
		}
	}
	r.checkBuilds(text, fault)
	for _, v := range variable.FindAllString(prose, -1) {
		if !r.words[v] {
			fault("%s is nowhere in the code", v)
		}
	}
	for _, m := range metric.FindAllString(prose, -1) {
		if !strings.HasSuffix(m, ".*") && !r.words[m] {
			fault("%s is no metric", m)
		}
	}
	return faults
}

// checkBuilds finds programs that are built elsewhere than the page has them, and ones that it runs and builds nowhere.
func (r *references) checkBuilds(text string, fault func(string, ...any)) {
	built := set{}
	for _, b := range builds.FindAllStringSubmatch(text, -1) {
		dir, program := b[1], path.Join(b[1], b[2]) // go build goes to the folder first
		if strings.HasSuffix(b[2], "/") {
			program = path.Join(program, path.Base(dir))
		}
		built[program] = true
		if !slices.ContainsFunc(slices.Collect(maps.Keys(r.files)), func(name string) bool { return path.Dir(name) == dir }) {
			fault("%s is no package", dir)
		}
		if !strings.Contains(strings.ReplaceAll(text, b[0], ""), program) {
			fault("%s is built, and nothing names it", program)
		}
	}
	for _, c := range started.FindAllStringSubmatch(text, -1) {
		if !built[path.Clean(c[1])] {
			fault("nothing builds %s", c[1])
		}
	}
}

// checkMake finds targets and variables that the Makefile does not have.
func (r *references) checkMake(part string, fault func(string, ...any)) {
	for _, m := range makes.FindAllStringSubmatch(part, -1) {
		command, _, _ := strings.Cut(m[1], "  ") // and what it is for
		for _, word := range strings.Fields(command) {
			name, _, sets := strings.Cut(word, "=")
			switch makefile := r.files["Makefile"]; {
			case sets && !regexp.MustCompile(`\b`+name+`\b`).MatchString(makefile):
				fault("make has no variable %s", name)
			case !sets && !regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(name)+`:`).MatchString(makefile):
				fault("make has no target %s", name)
			}
		}
	}
}

// checkGo finds patterns that no test matches, works of no benchmark and flags that a
// program does not have.
func (r *references) checkGo(part string, fault func(string, ...any)) {
	for _, w := range works.FindAllStringSubmatch(part, -1) {
		if !r.isWork(w[1]) {
			fault("-work %s is no work of a benchmark", w[1])
		}
	}
	commands := goRuns.FindAllStringSubmatch(part, -1)
	for _, c := range commands {
		dir, words := c[1], strings.Fields(c[3])
		at := slices.IndexFunc(words, func(w string) bool { return w == "." || strings.HasPrefix(w, "./") })
		if c[2] == "run" && at >= 0 {
			pkg := path.Join(dir, words[at])
			for _, word := range words[at+1:] {
				if name, ok := strings.CutPrefix(word, "-"); ok && !r.declares(pkg, name) {
					fault("%s has no flag -%s", pkg, name)
				}
			}
			continue
		}
		for _, p := range patterns.FindAllStringSubmatch(c[3], -1) {
			pkg := "..."
			if at >= 0 {
				pkg = path.Join(dir, words[at])
			}
			if !r.matches(pkg, strings.Trim(p[1], "'")) {
				fault("no test of %s matches %s", pkg, p[1])
			}
		}
	}
	if len(commands) > 0 {
		return
	}
	for _, p := range patterns.FindAllStringSubmatch(part, -1) {
		if !r.matches("...", strings.Trim(p[1], "'")) {
			fault("no test matches %s", p[1])
		}
	}
}

// isWork reports whether a benchmark has a work of that name.
func (r *references) isWork(name string) bool {
	for file, text := range r.files {
		if path.Base(file) == "works.go" && strings.Contains(text, `{name: "`+name+`"`) {
			return true
		}
	}
	return false
}

// declares reports whether the program of a folder has a flag.
func (r *references) declares(dir, flag string) bool {
	for name, text := range r.files {
		if path.Dir(name) == path.Clean(dir) && strings.Contains(text, `"`+flag+`",`) {
			return true
		}
	}
	return false
}

// isFlag reports whether one of the commands has a flag: of the pages that are of one
// command, that.
func (r *references) isFlag(page, flag string) bool {
	of := map[string][]string{"docs/shell.md": {"cmd/flightpool"}, "docs/leasectl.md": {"cmd/leasectl"}}[page]
	if of == nil {
		of = []string{"cmd/flightpool", "cmd/leasectl"}
	}
	return flag == "version" || flag == "help" || slices.ContainsFunc(of, func(dir string) bool { return r.declares(dir, flag) })
}

// matches reports whether a test of a package, or of all below where it ends in "...",
// matches a pattern. xxx is one that is meant to match none, and NAME stands for any.
func (r *references) matches(pkg, pattern string) bool {
	dir, below := strings.CutSuffix(path.Clean(pkg), "...")
	re, err := regexp.Compile(pattern)
	if err != nil {
		return false
	}
	for at, names := range r.tests {
		if at == dir || below && strings.HasPrefix(at+"/", dir) {
			if slices.ContainsFunc(names, re.MatchString) {
				return true
			}
		}
	}
	return strings.EqualFold(pattern, "xxx") || pattern == "NAME"
}
