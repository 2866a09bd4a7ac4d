package mutate

import (
	"bytes"
	"slices"
)

// edit puts text in the place of the bytes [at, at+cut).
type edit struct {
	at, cut int
	text    string
}

// edits are changes of one file. Of several insertions at one place, those
// that open an expression stand in the order in which they were added (outer
// ones first) and those that close one in the reverse order, before them.
type edits struct {
	opens, closes, swaps []edit
}

// wrap puts before and after round the bytes [from, to).
func (e *edits) wrap(from, to int, before, after string) {
	e.opens = append(e.opens, edit{at: from, text: before})
	e.closes = append(e.closes, edit{at: to, text: after})
}

// swap replaces an operator.
func (e *edits) swap(at, length int, text string) {
	e.swaps = append(e.swaps, edit{at: at, cut: length, text: text})
}

func (e *edits) apply(text []byte) []byte {
	closes := slices.Clone(e.closes)
	slices.Reverse(closes)
	all := slices.Concat(closes, e.opens, e.swaps)
	slices.SortStableFunc(all, func(a, b edit) int { return a.at - b.at })
	var out bytes.Buffer
	at := 0
	for _, c := range all {
		out.Write(text[at:c.at])
		out.WriteString(c.text)
		at = c.at + c.cut
	}
	out.Write(text[at:])
	return out.Bytes()
}
