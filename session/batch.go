package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/printing"
	"github.com/flightpool/flightpool/internal/sqlscan"
	"github.com/flightpool/flightpool/rowscan"
)

// A Batch is a list of statements that SendBatch of a session, transaction or pool runs
// one after the other on one connection:
//
//	var b flightpool.Batch
//	b.Queue("INSERT INTO flights VALUES (?, ?)", "BER", 12)
//	b.Queue("SELECT count(*) FROM flights").Scan(&n)
//	err := tx.SendBatch(ctx, &b)
//
// Flight SQL sends nothing ahead: each statement is sent when the one before it is done,
// and costs what it would cost alone. What a Batch gives is their order, one session, and
// one error that says how far they came. Nor is it a transaction, as pgx's is: outside of
// one, what has run stays when a later statement fails.
//
// A function of it may queue more, which runs at the end, and is of that SendBatch alone. It may
// be sent again. One goroutine uses it at a time.
type Batch struct{ queued []*QueuedStatement }

// QueuedStatement is a statement of a Batch. One that nothing more is said of is run, and
// its rows, if it has any, are passed over.
type QueuedStatement struct {
	sql  string
	opts QueryOptions
	read func(*QueryResult) error
}

// Queue adds a statement. args are its parameters, as in Query, which are read when it
// is sent.
func (b *Batch) Queue(sql string, args ...any) *QueuedStatement {
	return b.QueueWithOptions(sql, QueryOptions{Args: args})
}

// QueueWithOptions is Queue with options, such as a Timeout of the statement's own. Their
// Params are the caller's to hold until the batch is sent.
func (b *Batch) QueueWithOptions(sql string, opts QueryOptions) *QueuedStatement {
	opts.Args = slices.Clone(opts.Args)
	q := &QueuedStatement{sql: sql, opts: opts, read: func(r *QueryResult) error {
		for r.Next() {
			continue
		}
		return r.Err()
	}}
	b.queued = append(b.queued, q)
	return q
}

// Len is how many statements were queued.
func (b *Batch) Len() int {
	if b == nil { // as an empty one
		return 0
	}
	return len(b.queued)
}

// Query has read called with the result of the statement. The result ends when read
// returns; an error of read ends the batch. RowsAffected of the result is that of a change.
func (q *QueuedStatement) Query(read func(rows *QueryResult) error) { q.read = read }

// Scan sets what dest points to, one for each column, to the first row of the statement, as
// Row.Scan does. Without a row the batch ends with ErrNoRows.
func (q *QueuedStatement) Scan(dest ...any) {
	q.read = func(r *QueryResult) error { return rowscan.ScanOne(r, dest...) }
}

// String tells how many statements there are; what they hold is not shown.
func (b Batch) String() string {
	return fmt.Sprintf("flightpool batch of %d statements", len(b.queued))
}

// Format prints String under every verb.
func (b Batch) Format(f fmt.State, _ rune) { printing.Format(f, b.String()) }

// String names the type; what a statement holds is not shown.
func (q QueuedStatement) String() string { return "flightpool queued statement" }

// Format prints String under every verb.
func (q QueuedStatement) Format(f fmt.State, _ rune) { printing.Format(f, q.String()) }

// A BatchError ends a batch. The statements before the one at Index have run and were read,
// those after it were not sent; what is known of itself is in Err.
type BatchError struct {
	Index int // of the statement that has failed, or whose function has; from 0
	Len   int // of the batch
	Err   error

	summary  string
	answered bool // the statement at Index was, too
	alone    bool // no transaction can undo what has run
}

func (e *BatchError) Error() string {
	text := fmt.Sprintf("statement %d of %d of a batch (%s)", e.Index+1, e.Len, e.summary)
	if unsent := e.Len - e.Index - 1; unsent > 0 {
		text += fmt.Sprintf(", %d not sent", unsent)
	}
	return text + ": " + e.Err.Error()
}

// Unwrap gives Err.
func (e *BatchError) Unwrap() error { return e.Err }

// SafeToRetry reports whether the batch may be sent again: nothing of it has been answered,
// and its first statement is safe to repeat.
func (e *BatchError) SafeToRetry() bool { return !e.ran() && backend.SafeToRetry(e.Err) }

// PartlyDone reports whether statements of the batch have run outside of a transaction, so
// that what they have changed stays. IsConflict is false then.
func (e *BatchError) PartlyDone() bool {
	var failed *backend.Error
	return e.alone && (e.ran() || errors.As(e.Err, &failed) && failed.Partial)
}

func (e *BatchError) ran() bool { return e.Index > 0 || e.answered }

// SendBatch runs the statements of b in their order, up to the first that fails, or whose
// function does. Its error then is a *BatchError. Each is sent once and never repeated.
// ctx bounds them together; each has the timeout of its options besides. A transaction that
// is open is theirs too: it is aborted by a statement that the server fails, and open still
// after what has failed without the server, such as a function.
func (s *SessionHandle) SendBatch(ctx context.Context, b *Batch) (err error) {
	ctx, end := s.traceBatch(ctx, b)
	err = errCallbackExited // where a function of the caller's ends the goroutine
	defer func() { end(err) }()
	defer b.keepFirst(b.Len()) // also when a function panics
	alone := s.txState().phase == txNone
	for i := 0; i < b.Len(); i++ { // of which there may be more after each function
		q := b.queued[i]
		if answered, failed := q.run(ctx, s); failed != nil {
			alone = alone || s.txState().phase == txNone // a function of the batch has ended it
			return &BatchError{i, len(b.queued), failed, sqlscan.Summary(q.sql), answered, alone}
		}
	}
	return nil
}

// keepFirst lets go of what functions have queued, which queue it again where the batch is sent again.
func (b *Batch) keepFirst(n int) {
	if n < b.Len() {
		clear(b.queued[n:])
		b.queued = b.queued[:n]
	}
}

// run runs the statement and has its result read. answered says that there was one.
func (q *QueuedStatement) run(ctx context.Context, s *SessionHandle) (answered bool, err error) {
	result, err := s.query(ctx, "SendBatch", q.sql, q.opts)
	if err != nil {
		return false, err
	}
	defer func() { _ = result.end() }() // also when read panics
	result.Retain()                     // its end is Close's, which tells whether a change has succeeded
	err = q.read(result)
	if end := result.Close(); end != nil && !errors.Is(err, end) {
		err = errjoin.Join(err, end)
	}
	return true, err
}

// A BatchTracer sees every batch from when it has its connection. What a start returns has
// the values with which its statements run, each a call of its own for a QueryTracer.
type BatchTracer interface {
	TraceBatchStart(ctx context.Context, data BatchStartData) context.Context
	TraceBatchEnd(ctx context.Context, data BatchEndData)
}

// BatchStartData is a batch that begins.
type BatchStartData struct {
	Target       string
	ConnectionID uint64
	Len          int // how many statements it has
}

// BatchEndData is a batch that has ended.
type BatchEndData struct {
	BatchStartData
	Took time.Duration
	Err  error
}

// traceBatch tells of a batch. The function tells of its end.
func (s *SessionHandle) traceBatch(ctx context.Context, b *Batch) (context.Context, func(error)) {
	tracer := s.policy.Tracer
	if tracer == nil {
		return ctx, func(error) {}
	}
	began, data := time.Now(), BatchStartData{s.policy.Target, s.id, b.Len()}
	ctx = tracer.TraceBatchStart(ctx, data)
	return ctx, func(err error) { tracer.TraceBatchEnd(ctx, BatchEndData{data, time.Since(began), err}) }
}
