package doctor

import (
	"fmt"
	"go/format"
	"io"
	"strings"

	"github.com/flightpool/flightpool/cmd/flightpool/internal/output"
)

// Text prints a finding on a line.
func (f Finding) Text(w io.Writer) {
	line := fmt.Sprintf("%-16s %-14s %s", f.Subject, output.Printable(f.Verdict), output.Printable(f.Detail))
	fmt.Fprintln(w, strings.TrimRight(line, " ")) // w tells at its end that it could not be written
}

// Entrance is what it took to be let in, as Go source.
type Entrance struct {
	Before string   // statements that come first
	Fields []string // of Config, each with its value
}

// Go is the Config that suits the server, as Go source.
func (r *Report) Go(by Entrance) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%spool, err := flightpool.New(ctx, %q, flightpool.Config{\n", by.Before, r.Target)
	for _, field := range by.Fields {
		fmt.Fprintf(&b, "%s,\n", field)
	}
	for _, s := range r.Settings {
		value, field := s.Go, s.Field
		if outer, inner, nested := strings.Cut(field, "."); nested {
			field, value = outer, "flightpool."+outer+"{"+inner+": "+value+"}"
		}
		fmt.Fprintf(&b, "%s: %s, // %s\n", field, value, s.Why)
	}
	b.WriteString("})\n")
	text, err := format.Source([]byte(b.String()))
	if err != nil {
		return b.String()
	}
	return string(text)
}
