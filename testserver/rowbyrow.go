package testserver

import (
	"context"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/testserver/engine"
)

// updateRunner runs a statement with all rows of its parameters.
type updateRunner func(ctx context.Context, db engine.Session, sql string, params []arrow.RecordBatch) (int64, error)

// runAll runs the statement itself, as one that is asked for its rows is (DoGet).
func (h *handlers) runAll(ctx context.Context, db engine.Session, sql string, params []arrow.RecordBatch) (int64, error) {
	if len(params) == 0 {
		return db.Update(ctx, sql, nil)
	}
	var sum int64
	for _, p := range params {
		n, err := db.Update(ctx, sql, p)
		if err != nil {
			return 0, err
		}
		if n < 0 || sum < 0 {
			sum = -1
		} else {
			sum += n
		}
	}
	return sum, nil
}

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

// firstRow keeps the first row only; it takes params over.
func firstRow(params []arrow.RecordBatch) []arrow.RecordBatch {
	defer releaseAll(params)
	for _, b := range params {
		if b.NumRows() > 0 {
			return []arrow.RecordBatch{b.NewSlice(0, 1)}
		}
	}
	return nil
}
