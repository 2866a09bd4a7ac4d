package dsql

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/ctxerr"
	"github.com/flightpool/flightpool/internal/usedup"
)

var errSourceEnded = errors.New("dsql: the source of the rows has panicked or ended its goroutine")

// A copySource is the user's source of rows as pgx sees it. pgx calls a source on a
// goroutine of its own, for which it waits: there a panic would end the process, and a
// source that waits for its next row would hold the caller, and the server, after the
// end of ctx.
type copySource struct {
	ctx        context.Context //nolint:containedctx // of CopyFrom, which pgx does not hand to a source
	requests   chan struct{}   // a row is wanted; closed when none is any more
	rows       chan sourceRow
	sourceCall *callback.Call[struct{}] // of the source

	// The row at hand, and why there is no other. Of pgx's goroutine.
	row []any
	err error
}

// sourceRow is what one call of the source returned.
type sourceRow struct {
	row  []any
	more bool
	err  error
}

var _ pgx.CopyFromSource = (*copySource)(nil)

// newCopySource starts a copySource, which must be ended.
func newCopySource(ctx context.Context, source pgx.CopyFromSource) *copySource {
	// Neither channel makes anybody wait for one who is gone.
	f := &copySource{ctx: ctx, requests: make(chan struct{}, 1), rows: make(chan sourceRow, 1)}
	f.sourceCall = callback.Go(func() (struct{}, error) { f.readSource(source); return struct{}{}, nil })
	return f
}

// readSource calls the source for each row that is wanted.
func (f *copySource) readSource(source pgx.CopyFromSource) {
	for range f.requests {
		var c sourceRow
		if c.more = source.Next(); c.more {
			c.row, c.err = source.Values()
		} else {
			c.err = source.Err()
		}
		f.rows <- c
	}
}

// Next waits for a row until ctx ends.
func (f *copySource) Next() bool {
	if f.err = ctxerr.Of(f.ctx); f.err != nil {
		return false
	}
	f.requests <- struct{}{}
	select {
	case c := <-f.rows:
		f.row, f.err = c.row, c.err
		return c.more && c.err == nil
	case <-f.sourceCall.Done:
		f.err = errSourceEnded
	case <-f.ctx.Done():
		f.err = ctxerr.Of(f.ctx)
	}
	return false
}

// Values is the row.
func (f *copySource) Values() ([]any, error) { return f.row, nil }

// Err is why there are no more rows; nil: that were all.
func (f *copySource) Err() error { return f.err }

// end waits for the source, once ctx has ended no longer than grace, and goes on
// with its panic. It must be called by who called CopyFrom, after that.
func (f *copySource) end(grace time.Duration) {
	close(f.requests)
	if f.sourceCall.Wait(f.ctx, grace) {
		f.sourceCall.Resume()
	}
}

var errSourceUsed = errors.New("dsql: the rows of the source were read by a run of the transaction before, which has lost a conflict: make it in the function")

// onceSource is a source in a transaction that may run again. It fails where a run before has read the rows.
type onceSource struct {
	pgx.CopyFromSource
	before *usedup.Reading // nil: none has
	taken  atomic.Bool     // a row, in this run
}

// Next is part of pgx.CopyFromSource.
func (s *onceSource) Next() bool {
	next := s.CopyFromSource.Next
	if s.before != nil {
		next = func() bool { return s.before.Next(s.CopyFromSource.Next) }
	}
	if !next() {
		return false
	}
	s.taken.Store(true)
	return true
}

// Err is part of pgx.CopyFromSource.
func (s *onceSource) Err() error {
	if err := s.CopyFromSource.Err(); err != nil || s.before == nil || !s.before.IsLacking() {
		return err
	}
	return errSourceUsed
}
