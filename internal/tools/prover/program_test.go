package prover

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// program is what is run.
type program struct {
	profile string
	auth    string        // none, basic, token
	max     int           // Config.MaxSize
	min     int           // Config.MinIdle
	check   time.Duration // Config.HealthCheck.Interval, negative: off
	prepare string        // how Config.OnConnect prepares each session, empty: not at all
	backend string        // open, new: the pool is adbcpool's of that name; grpc: flightpool.New's over gRPC's own client; empty: flightpool.New's
	keeps   int           // Config.StatementCache
	reset   string        // Config.OnReturn: discard or none; empty: auto
	users   int           // with 2 of them actor c has a pool of its own, which shares its settings with the other
	steps   []step
}

// step is one line of a program.
type step struct {
	who    string // a, b or c; empty: the pool or the server
	verb   string
	args   []string
	within time.Duration // deadline of the call, 0 for a long one
	cut    time.Duration // when its context is cancelled, 0 for never
	caused string        // what another call has failed with is the cause of its context's end
	limit  time.Duration // QueryOptions.Timeout
	kept   bool          // QueryOptions.NoCancel
	headed bool          // QueryOptions.Headers
	beside bool          // it is carried out beside the steps that follow, until the next of its actor
}

func (s step) String() string {
	words := append([]string{s.verb}, s.args...)
	if s.who != "" {
		words = append([]string{s.who}, words...)
	}
	if s.within > 0 {
		words = append(words, "within", s.within.String())
	}
	if s.cut > 0 {
		words = append(words, "cut", s.cut.String())
	}
	if s.caused != "" {
		words = append(words, "caused", s.caused)
	}
	if s.limit > 0 {
		words = append(words, "timeout", s.limit.String())
	}
	if s.kept {
		words = append(words, "kept")
	}
	if s.headed {
		words = append(words, "headed")
	}
	if s.beside {
		words = append(words, "&")
	}
	return strings.Join(words, " ")
}

func (p program) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "profile %s\nauth %s\nmax %d\nmin %d\ncheck %v\n", p.profile, p.auth, p.max, p.min, p.check)
	if p.prepare != "" {
		fmt.Fprintf(&b, "onconnect %s\n", p.prepare)
	}
	if p.backend != "" {
		fmt.Fprintf(&b, "backend %s\n", p.backend)
	}
	if p.keeps != 0 {
		fmt.Fprintf(&b, "statements %d\n", p.keeps)
	}
	if p.users > 1 {
		fmt.Fprintf(&b, "users %d\n", p.users)
	}
	if p.reset != "" {
		fmt.Fprintf(&b, "onreturn %s\n", p.reset)
	}
	for _, s := range p.steps {
		fmt.Fprintln(&b, s)
	}
	return b.String()
}

// parse reads a program. Empty lines and those that begin with # are left out.
func parse(text string) (program, error) {
	p := program{auth: "none", max: 2, min: -1, check: 30 * time.Second}
	for i, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || words[0][0] == '#' {
			continue
		}
		var err error
		switch {
		case words[0] == "profile" && len(words) == 2:
			p.profile = words[1]
		case words[0] == "auth" && len(words) == 2:
			p.auth = words[1]
		case words[0] == "onconnect" && len(words) == 2:
			p.prepare = words[1]
		case words[0] == "onreturn" && len(words) == 2:
			p.reset = words[1]
		case words[0] == "backend" && len(words) == 2:
			p.backend = words[1]
		case words[0] == "statements" && len(words) == 2:
			p.keeps, err = strconv.Atoi(words[1])
		case words[0] == "users" && len(words) == 2:
			p.users, err = strconv.Atoi(words[1])
		case words[0] == "max" && len(words) == 2:
			p.max, err = strconv.Atoi(words[1])
		case words[0] == "min" && len(words) == 2:
			p.min, err = strconv.Atoi(words[1])
		case words[0] == "check" && len(words) == 2:
			p.check, err = time.ParseDuration(words[1])
		default:
			var s step
			s, err = parseStep(words)
			p.steps = append(p.steps, s)
		}
		if err != nil {
			return p, fmt.Errorf("line %d: %q: %w", i+1, line, err)
		}
	}
	return p, nil
}

func parseStep(words []string) (s step, err error) {
	if len(words[0]) == 1 {
		s.who, words = words[0], words[1:]
	}
	if len(words) == 0 {
		return s, fmt.Errorf("no verb")
	}
	for more := true; more && len(words) > 1; {
		if words, more, err = s.parseLast(words); err != nil {
			return s, err
		}
	}
	s.verb, s.args = words[0], words[1:]
	return s, nil
}

// parseLast reads what a step says last of how its call is made, if it does.
func (s *step) parseLast(words []string) (rest []string, more bool, err error) {
	last := len(words) - 1
	for word, flag := range map[string]*bool{"&": &s.beside, "kept": &s.kept, "headed": &s.headed} {
		if words[last] == word {
			*flag = true
			return words[:last], true, nil
		}
	}
	if last < 2 {
		return words, false, nil
	}
	for word, limit := range map[string]*time.Duration{"within": &s.within, "cut": &s.cut, "timeout": &s.limit} {
		if words[last-1] == word {
			*limit, err = time.ParseDuration(words[last])
			return words[:last-1], true, err
		}
	}
	if words[last-1] == "caused" {
		s.caused = words[last]
		return words[:last-1], true, nil
	}
	return words, false, nil
}

func (s step) arg(i int) string {
	if i < len(s.args) {
		return s.args[i]
	}
	return ""
}

func (s step) num(i int) int64 {
	n, _ := strconv.ParseInt(s.arg(i), 10, 64)
	return n
}

func (s step) duration(i int) time.Duration {
	d, _ := time.ParseDuration(s.arg(i))
	return d
}
