package testserver

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
)

// turnsOf are the parameters of a change as they are run in turns of the session: all at once, or, with
// RowByRow, one row after the other. owned are all batches that are released with them.
func (h *handlers) turnsOf(sql string, params []arrow.RecordBatch) (turns [][]arrow.RecordBatch, owned []arrow.RecordBatch) {
	_, isInsert := insertionOf(sql)
	if !h.srv.profile.RowByRow || isInsert && h.srv.profile.AppendTo != "" {
		return [][]arrow.RecordBatch{params}, params
	}
	owned = slices.Clip(params)
	for _, p := range params {
		for row := range p.NumRows() {
			one := p.NewSlice(row, row+1)
			turns, owned = append(turns, []arrow.RecordBatch{one}), append(owned, one)
		}
	}
	if len(turns) == 0 {
		turns = [][]arrow.RecordBatch{params}
	}
	return turns, owned
}
