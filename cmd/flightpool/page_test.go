package main

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/script"
)

const pagePrompt = "127.0.0.1:31337=> "

// Each block of docs/shell.md with output is run, and what it prints compared with the page:
// the figures of times, loads and addresses apart, and what the page leaves out by "…".
func TestThePageShowsWhatIsPrinted(t *testing.T) {
	page, err := os.ReadFile("../../docs/shell.md")
	require.NoError(t, err)
	run := 0
	for _, block := range regexp.MustCompile("(?ms)^```\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		run++
		command, _, _ := strings.Cut(block[1], "\n")
		t.Run(command, func(t *testing.T) {
			printed := ""
			if line, ok := strings.CutPrefix(command, "$ "); ok {
				printed = command + "\n" + runLine(t, line)
			} else {
				printed = typeBlock(t, block[1])
			}
			want := regexp.QuoteMeta(withoutFigures(block[1]))
			require.Regexp(t, "^"+strings.ReplaceAll(want, "…", ".*")+"$", withoutFigures(printed))
		})
	}
	require.Equal(t, 5, run)
}

var (
	pageURL   = regexp.MustCompile(`grpc://(app:…@)?[^ ]+`)
	pageAddr  = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	pageTime  = regexp.MustCompile(`\d+(\.\d+)?(µs|ms|s)\b`)
	pageCount = regexp.MustCompile(`\d+ calls?.*|\d\.\d{3} s in all`) // of a load
)

func withoutFigures(text string) string {
	text = pageURL.ReplaceAllString(text, "URL")
	text = strings.ReplaceAll(text, "-d 200ms", "-d 10s")
	for re, name := range map[*regexp.Regexp]string{pageAddr: "ADDRESS", pageTime: "TIME", pageCount: "COUNT"} {
		text = re.ReplaceAllString(text, name)
	}
	return text
}

// runLine is what a command line prints, on a server of the kind that the page names.
func runLine(t *testing.T, line string) string {
	opts := testserver.Options{}
	if strings.Contains(line, "doctor") {
		opts = testserver.Options{Profile: testserver.ClickHouse(), Users: map[string]string{"app": "s3cret"}}
	}
	at := serve(t, opts).URI()
	if strings.Contains(line, "app:…@") {
		at = strings.Replace(at, "://", "://app:s3cret@", 1)
	}
	line = strings.Replace(pageURL.ReplaceAllString(line, at), "-d 10s", "-d 200ms", 1)
	program, err := os.Executable()
	require.NoError(t, err)
	shell := exec.CommandContext(t.Context(), "sh", "-c", `flightpool() { "$PROGRAM" "$@"; }; `+line)
	shell.Env = []string{asCommand + "=1", "PROGRAM=" + program, "HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	shell.Stderr = os.Stderr
	out, err := shell.Output()
	require.NoError(t, err)
	return string(out)
}

// typeBlock types what stands behind the prompts of a block, and is what the terminal shows
// then. A statement that takes long is stopped.
func typeBlock(t *testing.T, block string) string {
	flights := script.New()
	flights.On("select origin, delay", func(context.Context, string, arrow.RecordBatch) (array.RecordReader, error) {
		b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "origin", Type: arrow.BinaryTypes.String}, {Name: "delay", Type: arrow.PrimitiveTypes.Int64}}, nil))
		defer b.Release()
		b.Field(0).(*array.StringBuilder).Append("BER")
		b.Field(1).(*array.Int64Builder).Append(12)
		row := b.NewRecordBatch()
		return array.NewRecordReader(row.Schema(), []arrow.RecordBatch{row})
	})
	s := open(t, nil, serve(t, testserver.Options{Engine: flights}).URI())
	s.prompted("=>")
	typed := ""
	for _, line := range strings.Split(block, "\n") {
		text, begins := strings.CutPrefix(line, pagePrompt)
		if !begins {
			_, text, begins = strings.Cut(line, "..> ")
		}
		if begins {
			if typed != "" {
				s.prompted("..>")
			}
			s.enter(text)
			typed = text
		}
	}
	if strings.Contains(typed, "sleep") {
		s.wait("(Ctrl-C stops it)")
		s.keys("C-c")
	}
	_, shown, _ := strings.Cut(s.prompted("=>"), "\n")      // behind the greeting
	if !strings.HasSuffix(strings.TrimSpace(block), "=>") { // it leaves the last prompt out
		shown = shown[:strings.LastIndex(shown, "\n")]
	}
	return pageAddr.ReplaceAllString(shown, "127.0.0.1:31337") + "\n"
}
