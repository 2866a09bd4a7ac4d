package dsql

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

var errSourceEnded = errors.New("dsql: the source of the rows has panicked or ended its goroutine")

// A feed is the user's source of rows as pgx sees it. pgx calls a source on a
// goroutine of its own, for which it waits: there a panic would end the process,
// and a source that waits for its next row would hold the caller, and the
// server, after the end of ctx.
type feed struct {
	ctx    context.Context //nolint:containedctx // of CopyFrom, which pgx does not hand to a source
	wanted chan struct{}   // a row is wanted; closed when none is any more
	rows   chan copied
	calls  *guarded // of the source

	// The row at hand, and why there is no other. Of pgx's goroutine.
	row []any
	err error
}

// copied is what source has answered.
type copied struct {
	row  []any
	more bool
	err  error
}

var _ pgx.CopyFromSource = (*feed)(nil)

// newFeed starts a feed, which must be ended.
func newFeed(ctx context.Context, source pgx.CopyFromSource) *feed {
	// Neither channel makes anybody wait for one who is gone.
	f := &feed{ctx: ctx, wanted: make(chan struct{}, 1), rows: make(chan copied, 1)}
	f.calls = guard(func() { f.call(source) })
	return f
}

// call calls the source for each row that is wanted.
func (f *feed) call(source pgx.CopyFromSource) {
	for range f.wanted {
		var c copied
		if c.more = source.Next(); c.more {
			c.row, c.err = source.Values()
		} else {
			c.err = source.Err()
		}
		f.rows <- c
	}
}

// Next waits for a row until ctx ends.
func (f *feed) Next() bool {
	if f.err = context.Cause(f.ctx); f.err != nil {
		return false
	}
	f.wanted <- struct{}{}
	select {
	case c := <-f.rows:
		f.row, f.err = c.row, c.err
		return c.more && c.err == nil
	case <-f.calls.ended:
		f.err = errSourceEnded
	case <-f.ctx.Done():
		f.err = context.Cause(f.ctx)
	}
	return false
}

// Values is the row.
func (f *feed) Values() ([]any, error) { return f.row, nil }

// Err is why there are no more rows; nil: that were all.
func (f *feed) Err() error { return f.err }

// end waits for the source, once ctx has ended no longer than grace, and goes on
// with its panic. It must be called by who called CopyFrom, after that.
func (f *feed) end(grace time.Duration) {
	close(f.wanted)
	f.calls.wait(f.ctx, grace)
}
