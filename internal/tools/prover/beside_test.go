package prover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
)

// turn is held by the one step that looks at the world. A step gives it away while its
// call is under way. Waiting for it lets virtual time pass, as a lock would not.
type turn chan struct{}

func (t turn) Lock()   { t <- struct{}{} }
func (t turn) Unlock() { <-t }

// start carries out one step, when the last of its actor is done: beside the steps that
// follow, if it says so. The caller has the turn.
func (w *world) start(s step) {
	var a *actor
	if s.who != "" {
		if a = w.actors[s.who]; a == nil {
			a = &actor{}
			w.actors[s.who] = a
		}
		if done := a.done; done != nil {
			w.turn.Unlock()
			<-done
			w.turn.Lock()
		}
	}
	if !s.beside {
		w.do(s, a)
		return
	}
	done := make(chan struct{})
	if a != nil {
		a.done = done
	}
	w.running.Go(func() {
		w.turn.Lock()
		w.do(s, a)
		w.turn.Unlock()
		close(done)
	})
}

// heldResult is a result that its reader keeps open.
type heldResult struct {
	res  *flightpool.QueryResult
	rows int64
	next int64
	stop context.CancelFunc
}

// letGo drops what is held.
func (w *world) letGo(a *actor) {
	if a.held == nil {
		return
	}
	a.held.res.Release()
	a.held.stop()
	a.held = nil
}

// hold opens a result that stays open until "drop", which lets it go, or "finish", which
// reads it to its end. Its deadline, or its cancel, may come while nobody reads.
func (w *world) hold(s step, a *actor) {
	switch {
	case s.verb == "open" && a.held == nil:
		h := &heldResult{rows: s.num(1)}
		ctx, _, stop := w.contextOf(s)
		h.stop = stop
		plain := s
		plain.within, plain.cut = max(s.within, s.cut), 0
		err := w.call(plain, func(context.Context) (err error) {
			h.res, err = a.handle.Query(ctx, fmt.Sprintf("SELECT * FROM generate(%d, %d) -- %s", h.rows, s.num(2), s.arg(0)))
			return err
		})
		w.judge(s, a, err)
		if err != nil {
			stop()
			return
		}
		a.held, a.shaken = h, true // what becomes of its statement may cost the session
		w.late = w.late || s.within > 0 || s.cut > 0
	case s.verb == "drop":
		_ = w.call(s, func(context.Context) error { w.letGo(a); return nil })
	case a.held != nil && s.verb != "open":
		h, batches := a.held, 1
		if s.verb == "finish" {
			batches = 1 << 20
		}
		err := w.call(s, func(context.Context) error { return w.take(s, h, batches) })
		if err != nil && a.tx != nil && a.tx.ended == open {
			a.tx.failed = true
		}
		if s.verb == "finish" {
			w.letGo(a)
		}
	}
}

// take reads batches of a held result.
func (w *world) take(s step, h *heldResult, batches int) error {
	for range batches {
		if !h.res.Next() {
			if h.res.Err() == nil && h.next != h.rows {
				w.breaks("short result", "%q: %d rows of %d and no error", s, h.next, h.rows)
			}
			return h.res.Err()
		}
		for _, row := range numbers(h.res.RecordBatch()) {
			if len(row) != 1 || row[0] != h.next {
				w.breaks("wrong rows", "%q: row %d is %v", s, h.next, row)
			}
			h.next++
		}
	}
	return nil
}

// closing closes the handle in some time, beside whatever its actor does then.
func (w *world) closing(s step, a *actor) {
	handle := a.handle
	a.shaken = true
	w.timers = append(w.timers, time.AfterFunc(s.duration(0), func() { _ = handle.Close() }))
	w.late = true
}

// quiet is what leaves nothing behind: a call of the catalogue, a ping, a prepared query, one
// whose progress is watched.
func (w *world) quiet(s step, a *actor) {
	q := a.prepared
	if s.verb == "unprepare" {
		if a.prepared = nil; q == nil {
			return
		}
	}
	err := w.call(s, func(ctx context.Context) error {
		if s.verb == "watch" { // which is polled for
			opts := flightpool.QueryOptions{Progress: func(float64, bool) {}}
			return drain(a.handle.QueryWithOptions(ctx, fmt.Sprintf("SELECT sleep('1s') -- %s", s.arg(0)), opts))
		}
		if s.verb == "meta" {
			return drain(a.handle.Metadata(ctx, backend.MetadataRequest{Kind: backend.MetadataTableTypes}))
		}
		if s.verb == "ping" {
			return a.handle.Ping(ctx)
		}
		if s.verb == "unprepare" {
			return q.Close(ctx)
		}
		q, err := a.handle.PrepareQuery(ctx, "SELECT * FROM generate(7, 2)")
		if err != nil {
			return err
		}
		got, err := values(q.Query(ctx))
		if err == nil && len(got) != 7 {
			w.breaks("wrong rows", "%q: %v", s, got)
		}
		if closed := q.Close(ctx); err == nil {
			err = closed
		}
		return err
	})
	w.judge(s, a, err)
}

var errFed = errors.New("the program's rows have failed")

// feed ingests rows in batches of one, with a pause before each, after which the reader
// may fail.
func (w *world) feed(s step, a *actor) {
	first, n, pause := s.num(0), s.num(1), s.duration(2)
	failing := s.arg(3) == "fail"
	if ttl := w.profile.SessionTTL; ttl > 0 && pause >= ttl {
		a.shaken = true // its session may end before the first of the rows comes
	}
	err := w.call(s, func(ctx context.Context) error {
		schema := batch(0, 0).Schema()
		reader := array.ReaderFromIter(schema, func(yield func(arrow.RecordBatch, error) bool) {
			w.fed.Lock() // a call that was given up has no other edge to the Wait at the end
			w.feeding.Add(1)
			w.fed.Unlock()
			defer w.feeding.Done()
			for i := range n {
				time.Sleep(pause)
				rows := batch(first+i, 1)
				if !yield(rows, nil) {
					return
				}
			}
			if failing {
				yield(nil, errFed)
			}
		})
		defer reader.Release()
		_, err := a.handle.Ingest(ctx, "log", reader, flightpool.IngestOptions{Catalog: "memory", Schema: "main"})
		return err
	})
	if err == nil && failing {
		w.breaks("failure unnoticed", "%q", s)
	}
	w.record(s, a, first, n, err)
	// Once two batches were taken, the first may be stored, whatever the server refuses: that aborts a transaction.
	refused := n > 1 && backend.FaultIn(err) == flightpool.FaultUnsupported
	a.shaken = a.shaken || failing || refused
	w.judge(s, a, err)
}
