package prover

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
)

// sender is what sends a batch, a pool or a session.
type sender interface {
	SendBatch(ctx context.Context, b *flightpool.Batch) error
}

// batch sends inserts of rows, from first on, with a read after each. The first read is
// refused by the server, its function fails or panics, or all is well.
func (w *world) batch(s step, a *actor, q sender) {
	first, n := s.num(0), s.num(1)
	var b flightpool.Batch
	for k := first; k < first+n; k++ {
		b.Queue(fmt.Sprintf("INSERT INTO %s VALUES (%d)", w.table, k))
		if k == first && s.arg(2) == "bad" {
			b.Queue("SELECT error('bad')")
			continue
		}
		b.Queue("SELECT * FROM generate(7, 2) -- " + strconv.FormatInt(k, 10)).Query(func(rows *flightpool.QueryResult) error {
			switch {
			case k > first || s.arg(2) == "ok":
			case s.arg(2) == "error":
				rows.Next()
				return errStop
			case s.arg(2) == "panic":
				rows.Next()
				panic(programPanic)
			}
			got, err := values(rows, nil)
			if err == nil && len(got) != 7 {
				w.breaks("wrong rows", "%q: %v", s, got)
			}
			return err
		})
	}
	err := w.call(s, func(ctx context.Context) error { return q.SendBatch(ctx, &b) })
	w.recordBatch(s, a, first, n, err)
	var failed *flightpool.BatchError
	switch {
	case err == nil && s.arg(2) != "ok":
		w.breaks("failure unnoticed", "%q", s)
	case errors.Is(err, errStop), errors.Is(err, errPanicked): // which an open transaction outlives
	case s.arg(2) == "bad" && errors.As(err, &failed) && failed.Index == 1 && backend.FaultIn(err) == flightpool.FaultStatement:
		if a != nil && a.tx != nil && a.tx.ended == open {
			a.tx.failed = true
		}
		return
	default:
		w.judge(s, a, err)
	}
	if a != nil && err != nil {
		a.shaken = true // what has become of the read may cost the session
	}
}

// recordBatch notes what a batch said of each of its rows.
func (w *world) recordBatch(s step, a *actor, first, n int64, err error) {
	var failed *flightpool.BatchError
	at := 2 * n // the statement that has ended it
	switch {
	case errors.As(err, &failed):
		at = int64(failed.Index)
		if flightpool.SafeToRetry(err) && at > 0 {
			w.breaks("repeated by advice", "%q: %v", s, err)
		}
	case errors.Is(err, errPanicked):
		at = 1
	case err != nil && !unsent(err) && !errors.Is(err, flightpool.ErrClosed):
		w.breaks("no word of how far it came", "%q: %v", s, err)
	case err != nil:
		at = -1
	}
	for i := range n {
		var said error
		switch {
		case 2*i == at:
			said = failed.Err
		case 2*i > at:
			said = &flightpool.Error{Op: "SendBatch", Stage: backend.StageArgument, Unsent: true}
		}
		w.record(s, a, first+i, 1, said)
	}
}
