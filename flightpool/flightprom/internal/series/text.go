package series

import (
	"io"
	"math"
	"strconv"
	"strings"
)

// A Reading is a source at the time of a scrape.
type Reading[S any] struct {
	stats  S
	labels []string // each as `name="value",`
}

// Read makes a Reading of a source's Stats, with a value for each of the Table's labels.
func (t *Table[S]) Read(stats S, source ...string) Reading[S] {
	r := Reading[S]{stats: stats, labels: make([]string, len(source))}
	for i, value := range source {
		r.labels[i] = textLabel(t.labels[i], labelValue(value))
	}
	return r
}

// Text writes metrics in Prometheus' text format 0.0.4. The first error ends it.
type Text struct {
	to   io.Writer
	line []byte
	err  error
}

// NewText makes a Text. Flush it at the end.
func NewText(to io.Writer) *Text { return &Text{to: to, line: make([]byte, 0, textChunk+1<<10)} }

// textChunk is about how many bytes are written at once.
const textChunk = 32 << 10

// Flush writes what is left, and returns the error of the first write that failed.
func (x *Text) Flush() error {
	if x.err == nil && len(x.line) > 0 {
		_, x.err = x.to.Write(x.line)
	}
	x.line = x.line[:0]
	return x.err
}

// WriteText writes the metrics of all sources, each metric once for all of them, as the
// format wants it.
func (t *Table[S]) WriteText(to *Text, all []Reading[S]) {
	if len(all) == 0 {
		return
	}
	for i := 0; i < len(t.rows) && to.err == nil; {
		same := i + 1
		for same < len(t.rows) && t.rows[same].desc == t.rows[i].desc {
			same++
		}
		to.line = append(to.line, t.rows[i].head...)
		for s := range all {
			for r := i; r < same; r++ {
				to.sample(&t.rows[r].textRow, all[s].labels, t.rows[r].value(&all[s].stats))
			}
		}
		i = same
	}
	for i := range t.histograms {
		h := &t.histograms[i]
		within := make([]uint64, len(h.bounds))
		to.line = append(to.line, h.head...)
		for s := range all {
			count, sum := h.read(&all[s].stats, within)
			own := all[s].labels
			for b := range within {
				to.sample(&h.buckets[b], own, float64(within[b]))
			}
			to.sample(&h.buckets[len(within)], own, float64(count))
			to.sample(&h.sum, own, sum)
			to.sample(&h.count, own, float64(count))
		}
	}
}

// A textRow is what the lines of a series have in common.
type textRow struct {
	head  string // of the metric
	name  string // with the brace behind it
	label string // which the series has besides its source's; empty: none
	place int    // where it stands among those
}

func (x *Text) sample(r *textRow, own []string, value float64) {
	line := append(x.line, r.name...)
	for _, label := range own[:r.place] {
		line = append(line, label...)
	}
	line = append(line, r.label...)
	for _, label := range own[r.place:] {
		line = append(line, label...)
	}
	line[len(line)-1] = '}' // for the last comma: each source has a label
	line = appendNumber(append(line, ' '), value)
	if x.line = append(line, '\n'); len(x.line) >= textChunk {
		_ = x.Flush() // kept
	}
}

// appendNumber has the shortest text of a number. Small whole ones need no search for it.
func appendNumber(to []byte, v float64) []byte {
	if n := int64(v); float64(n) == v && n > -1e6 && n < 1e6 {
		return strconv.AppendInt(to, n, 10)
	}
	if math.IsInf(v, 1) {
		return append(to, "+Inf"...)
	}
	return strconv.AppendFloat(to, v, 'g', -1, 64)
}

// What text cannot hold as it is.
var (
	quotedLabel = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
	quotedHelp  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
)

func textLabel(name, value string) string {
	return name + `="` + quotedLabel.Replace(value) + `",`
}

func textHead(name, help, kind string) string {
	return "# HELP " + name + " " + quotedHelp.Replace(help) + "\n# TYPE " + name + " " + kind + "\n"
}

// textRows are those of the buckets of a histogram, the one without a bound last.
func textRows(name string, bounds []float64, place int) (all []textRow) {
	for _, bound := range append(bounds[:len(bounds):len(bounds)], math.Inf(1)) {
		all = append(all, textRow{name: name + "_bucket{", label: textLabel("le", string(appendNumber(nil, bound))), place: place})
	}
	return all
}
