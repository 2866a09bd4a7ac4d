// Package series turns the Stats of sources into metrics. What the metrics of a kind of
// source have in common is made once, for its Table; what those of one source have, once
// for each scrape, so that nothing is kept that would have to follow sources that go.
package series

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// A Table is what is shown of a kind of source, whose Stats are an S.
type Table[S any] struct {
	prefix     string
	labels     []string // of each source, in the order of the alphabet
	rows       []row[S]
	histograms []histogram[S]
	pairs      int // of all rows together
	descs      map[string]*prometheus.Desc
}

// A row is one series of each source.
type row[S any] struct {
	desc    *prometheus.Desc
	counter bool
	value   func(*S) float64
	label   *dto.LabelPair // which the series has besides its source's; nil: none
	at      int            // where it stands among those
	textRow                // likewise, in the text
}

type histogram[S any] struct {
	desc   *prometheus.Desc
	bounds []float64
	read   func(*S, []uint64) (uint64, float64)

	head       string
	buckets    []textRow
	sum, count textRow
}

// NewTable makes a Table without metrics. prefix stands before each of their names.
func NewTable[S any](prefix string, labels ...string) *Table[S] {
	return &Table[S]{prefix: prefix, labels: slices.Sorted(slices.Values(labels)), descs: map[string]*prometheus.Desc{}}
}

// Gauge adds a series that rises and falls. Those of one name follow each other. series is its name, and behind a blank the
// label that it has besides those of its source, as in "connections state=idle". Series
// that differ in that label have the help of the first.
func (t *Table[S]) Gauge(help, series string, value func(*S) float64) {
	t.add(row[S]{value: value}, help, series)
}

// Counter adds a series that only rises.
func (t *Table[S]) Counter(help, series string, value func(*S) float64) {
	t.add(row[S]{value: value, counter: true}, help, series)
}

func (t *Table[S]) add(r row[S], help, series string) {
	name, label, labelled := strings.Cut(series, " ")
	labels, kind := t.labels, "gauge"
	if r.counter {
		kind = "counter"
	}
	r.name, r.head, r.place = t.prefix+name+"{", textHead(t.prefix+name, help, kind), len(labels)
	if labelled {
		key, value, _ := strings.Cut(label, "=")
		r.label = &dto.LabelPair{Name: &key, Value: &value}
		r.at, _ = slices.BinarySearch(labels, key)
		r.textRow.label, r.place = textLabel(key, value), r.at
		labels = slices.Insert(slices.Clone(labels), r.at, key)
		t.pairs++
	}
	t.pairs += len(t.labels)
	r.desc = t.desc(name, help, labels)
	t.rows = append(t.rows, r)
}

// Histogram adds one with buckets that end at bounds, in the order of their size. read
// writes how many are within each bound, and returns the count and the sum of all.
func (t *Table[S]) Histogram(help, name string, bounds []float64, read func(s *S, within []uint64) (count uint64, sum float64)) {
	full, place := t.prefix+name, len(t.labels)
	t.histograms = append(t.histograms, histogram[S]{
		desc: t.desc(name, help, t.labels), bounds: bounds, read: read, head: textHead(full, help, "histogram"),
		buckets: textRows(full, bounds, place), sum: textRow{name: full + "_sum{", place: place}, count: textRow{name: full + "_count{", place: place},
	})
}

func (t *Table[S]) desc(name, help string, labels []string) *prometheus.Desc {
	d := cmp.Or(t.descs[name], prometheus.NewDesc(t.prefix+name, help, labels, nil))
	t.descs[name] = d
	return d
}

// Describe sends what describes the metrics.
func (t *Table[S]) Describe(out chan<- *prometheus.Desc) {
	for _, d := range t.descs {
		out <- d
	}
}

// Collect sends the metrics of a source, with a value for each of the Table's labels, in
// the order of the alphabet.
func (t *Table[S]) Collect(out chan<- prometheus.Metric, stats *S, source ...string) {
	own := labelPairs(t.labels, source)
	pairs := make([]*dto.LabelPair, 0, t.pairs) // one allocation for all
	samples := make([]sample, len(t.rows))
	for i := range t.rows {
		r, from := &t.rows[i], len(pairs)
		pairs = append(pairs, own[:r.at]...)
		if r.label != nil {
			pairs = append(pairs, r.label)
		}
		pairs = append(pairs, own[r.at:]...)
		samples[i] = sample{desc: r.desc, counter: r.counter, labels: pairs[from:len(pairs):len(pairs)], value: r.value(stats)}
		out <- &samples[i]
	}
	for i := range t.histograms {
		h := &t.histograms[i]
		d := &distribution{desc: h.desc, labels: own, bounds: h.bounds, within: make([]uint64, len(h.bounds))}
		d.count, d.sum = h.read(stats, d.within)
		out <- d
	}
}

func labelPairs(names, values []string) []*dto.LabelPair {
	pairs := make([]*dto.LabelPair, len(names))
	for i := range names {
		value := labelValue(values[i])
		pairs[i] = &dto.LabelPair{Name: &names[i], Value: &value}
	}
	return pairs
}

// labelValue is a name as a label has it: UTF-8, since a scrape with anything else fails.
// Other names are quoted, and so are those that begin like a quoted one, so that no two
// become one.
func labelValue(name string) string {
	if utf8.ValidString(name) && !strings.HasPrefix(name, `"`) {
		return name
	}
	return strconv.QuoteToASCII(name)
}

// Of gives shorter words for the whole numbers of a Table: what is now, and what was
// counted.
func Of[S any](t *Table[S]) (now func(help, series string, value func(*S) int), count func(help, series string, value func(*S) uint64)) {
	now = func(help, series string, value func(*S) int) {
		t.Gauge(help, series, func(s *S) float64 { return float64(value(s)) })
	}
	count = func(help, series string, value func(*S) uint64) {
		t.Counter(help, series, func(s *S) float64 { return float64(value(s)) })
	}
	return now, count
}

// Flag is 1 for true.
func Flag(on bool) int {
	if on {
		return 1
	}
	return 0
}
