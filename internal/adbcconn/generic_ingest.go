package adbcconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/flightconn"
	"github.com/flightpool/flightpool/internal/ipcwrite"
)

// checkSendable is nil for what the driver can send. One of Flight SQL sends Arrow's
// IPC format; others are handed the arrays themselves.
func (c *GenericConn) checkSendable(schema *arrow.Schema) error {
	switch {
	case c.isFlightSQL:
		return flightconn.CheckSendable(schema)
	case c.isDuckDB():
		return checkIntervals(schema.Fields())
	}
	return nil
}

// Ingest is part of backend.Conn. Compression is the driver's affair. rows are
// read by the driver, on the goroutine of the call in the driver: a reader that
// blocks beyond the context costs the connection. Inside a transaction the
// Flight SQL driver is refused, since it would load outside of it.
//
// INVARIANT: an ingestion of the Flight SQL driver that is cut counts as one that the server may be at work on. That driver
// gives its stream up where the rows fail, or cannot be encoded or sent whole, and servers of Arrow's C++ library take that for their end.
func (c *GenericConn) Ingest(ctx context.Context, rows array.RecordReader, opts backend.IngestOptions, call backend.Call) (int64, error) {
	t, err := c.begin(ctx, "Ingest")
	if err != nil {
		return 0, err
	}
	defer t.end()
	switch {
	case opts.Table == "":
		return 0, t.usageError(errors.New("no table"))
	case call.Tx != "" && c.isFlightSQL:
		e := c.newError(t.op, backend.StageArgument, backend.FaultUnsupported,
			errors.New("ADBC's Flight SQL driver ingests outside of the open transaction"))
		e.Unsent = true
		return 0, e
	}
	if err := c.checkSendable(rows.Schema()); err != nil {
		return 0, t.usageError(fmt.Errorf("rows: %w", err))
	}
	var cut atomic.Bool
	var misplaced *misplacedError
	n, err := runInDriver(t, backend.StageExecute, func(ctx context.Context) (int64, error) {
		contained := &containedRows{RecordReader: rows, forC: !c.isFlightSQL}
		defer contained.resume() // behind the driver
		defer contained.releaseCompacted()
		n, err := c.load(ctx, contained, opts, call)
		contained.end()
		if errors.As(err, &misplaced) {
			return 0, nil
		}
		if contained.err != nil {
			cut.Store(c.isFlightSQL && contained.batch != nil)
		}
		switch { // to drivers in C what rows fail with is an I/O error, which is the connection's elsewhere, or their end
		case contained.err == nil:
		case err == nil:
			err = contained.err
		default:
			err = fmt.Errorf("%w (%v)", contained.err, err) //nolint:errorlint // so that it is not
		}
		return n, err
	}, nil)
	if misplaced != nil {
		e := c.newError(t.op, backend.StageArgument, backend.FaultUsage, misplaced)
		e.Unsent = true
		return 0, e
	}
	var e *backend.Error
	if errors.As(err, &e) && cut.Load() {
		e.Running = true
	}
	return n, err
}

// loadFitting has the driver load rows that fit the table, up to one that does not.
func (c *GenericConn) loadFitting(ctx context.Context, contained *containedRows, rows array.RecordReader, opts backend.IngestOptions, call backend.Call) (int64, error) {
	n, err := c.loadDirectly(ctx, contained, rows, opts, call)
	if signed, is := rows.(*signedRows); is && signed.err != nil {
		contained.err, err = signed.err, cmp.Or(err, signed.err)
	}
	return n, err
}

// loadDirectly has the driver load rows by itself.
func (c *GenericConn) loadDirectly(ctx context.Context, contained *containedRows, rows array.RecordReader, opts backend.IngestOptions, call backend.Call) (int64, error) {
	stmt, err := c.cn.NewStatement()
	if err != nil {
		return 0, err
	}
	defer func() { _ = stmt.Close() }()
	parts := &splitReader{}
	if c.isFlightSQL {
		parts = newSplitReader(rows, min(flightconn.DefaultRequestLimit, c.maxMessage), call.Op)
		parts.most = int64(c.maxMessage - headroom)
		defer parts.releaseUnread()
		rows = parts
	}
	own := ownDictionaries{RecordReader: rows}
	if c.isFlightSQL && ipcwrite.HasDictionary(rows.Schema()) {
		defer own.dictionaries.Release()
		rows = &own
	}
	set := setIngest(stmt, opts)
	for _, key := range slices.Sorted(maps.Keys(opts.Options)) { // which the driver passes on, or refuses
		set = cmp.Or(set, stmt.SetOption(key, opts.Options[key]))
	}
	if err := errjoin.Join(set, setHeaders(stmt, call), stmt.BindStream(ctx, rows)); err != nil {
		return 0, err
	}
	n, err := stmt.ExecuteUpdate(ctx)
	if broken := cmp.Or(own.err, parts.err); broken != nil {
		contained.err, err = broken, cmp.Or(err, broken) // a driver may take an early end for the end
	}
	return max(n, -1), err
}

// containedRows are rows of the caller's as a driver reads them: where their reader panics, or ends its
// goroutine, they fail, and resume goes on with that when the driver has returned. It must not go through the
// driver: in one written in C nothing would end what was under way. Behind end there are no more, whoever asks: the Snowflake
// driver's goroutines read on where it has failed.
type containedRows struct {
	array.RecordReader
	lock  sync.Mutex // is held while the reader is asked
	ended bool
	forC  bool // they go to a driver that may be one in C
	batch arrow.RecordBatch
	own   arrow.RecordBatch // batch, where it is not the reader's, or nil
	rows  int64             // in all batches so far
	err   error
	broke *callback.Call[bool] // or nil
}

var errReaderBroke = errors.New("the reader of the rows has panicked or ended its goroutine")

// Next is part of array.RecordReader. It reads the batch, or why there is none, too.
func (r *containedRows) Next() bool {
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.ended || r.broke != nil {
		return false
	}
	r.releaseCompacted()
	next := callback.Go(func() (more bool, err error) {
		if more = r.RecordReader.Next(); more {
			r.batch = r.RecordReader.RecordBatch()
			r.rows += r.batch.NumRows()
		} else {
			r.err = r.RecordReader.Err()
		}
		if more && r.forC {
			r.own, r.err = flightconn.ForC(r.batch)
			r.batch = r.own
		}
		return more && r.err == nil, nil
	})
	if <-next.Done; !next.Returned {
		r.broke, r.err = next, errReaderBroke
	}
	return next.Returned && next.Value
}

func (r *containedRows) releaseCompacted() {
	releaseBatch(r.own)
	r.own = nil
}

// RecordBatch is part of array.RecordReader.
func (r *containedRows) RecordBatch() arrow.RecordBatch { return r.batch }

// Record is part of array.RecordReader.
//
// Deprecated: it is RecordBatch.
func (r *containedRows) Record() arrow.RecordBatch { return r.batch }

// Err is part of array.RecordReader.
func (r *containedRows) Err() error { return r.err }

// end returns when the reader is not asked any more.
func (r *containedRows) end() {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.ended = true
}

// resume ends the caller as the reader has ended, unless it returned.
func (r *containedRows) resume() {
	if r.broke != nil {
		r.broke.Resume()
	}
}

var errDictionaryLeftOut = errors.New("a batch has a dictionary that is about that of the batch before, which ADBC's Flight SQL driver would leave out; the native backend sends it")

// ownDictionaries reads rows up to a batch whose dictionary ADBC's Flight SQL driver would
// leave out: see package ipcwrite. It does not release rows. release may be called only when
// the driver has returned.
type ownDictionaries struct {
	array.RecordReader
	dictionaries ipcwrite.Dictionaries
	err          error
}

// Next is part of array.RecordReader.
func (r *ownDictionaries) Next() bool {
	if r.err != nil || !r.RecordReader.Next() {
		return false
	}
	mistaken, err := r.dictionaries.Follow(r.RecordBatch())
	if mistaken {
		err = errDictionaryLeftOut
	}
	r.err = err
	return err == nil
}

// Err is part of array.RecordReader.
func (r *ownDictionaries) Err() error {
	if r.err != nil {
		return r.err
	}
	return r.RecordReader.Err()
}
