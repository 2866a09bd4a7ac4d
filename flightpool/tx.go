package flightpool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/internal/backoff"
	"github.com/flightpool/flightpool/internal/ctxerr"
	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/usedup"
)

// TxOptions adjust one transaction. The zero value is what most need. There are neither
// isolation levels nor read-only transactions: a Flight SQL client begins a transaction
// without a word on either. Where the server's SQL has them, its SET does it, in
// Config.OnConnect for all transactions, or as the first statement of one.
type TxOptions struct {
	// Attempts is how often InTx runs the transaction at most: once, and again after
	// conflicts (6; negative: until its context ends). BeginTx does not heed it.
	Attempts int
}

// The pause before InTx runs a transaction again is random, below a bound that doubles
// from the first of these to the second.
const (
	conflictPause        = 20 * time.Millisecond
	longestConflictPause = 2 * time.Second
)

// Tx is a transaction on a connection of its own, which Commit or Rollback gives back
// to the pool. One of them must be called, best by
//
//	defer tx.Rollback(ctx)
//
// which does nothing after Commit. Config.LeakAfter finds a Tx that was forgotten.
//
// It runs one call at a time, and a result is a call until it is read to its end or
// released: a second fails with ErrBusy. When a statement has failed, those that
// follow answer ErrTxAborted, until RollbackTo a savepoint or Rollback. After the end
// of the transaction every call but Rollback answers ErrHandleClosed.
type Tx struct {
	s     *SessionHandle
	ended atomic.Bool // the connection was given back

	used *usedup.Sources // the readers of all attempts of InTx; nil of BeginTx

	// commits counts the calls of Commit that have not said that nothing is stored.
	commits atomic.Int32
}

// BeginTx begins a transaction. ctx is that of the begin alone: when it ends later, the
// transaction goes on. A begin that meets a connection which has died unnoticed is
// repeated once on another.
func (p *FlightSQLPool) BeginTx(ctx context.Context, opts TxOptions) (*Tx, error) {
	tx, reached, err := p.beginTx(ctx, opts, false)
	if err != nil && reached && ctx.Err() == nil && p.shouldRepeat(err, QueryOptions{Retry: RetryAlways}) { // a begin stores nothing
		p.retried("BeginTx", err)
		first := err
		if tx, _, err = p.beginTx(ctx, opts, true); err != nil {
			err = fmt.Errorf("%w (the first attempt: %w)", err, first)
		}
	}
	return tx, err
}

// beginTx is one attempt. reached says that it had a connection, as runStateless has it: who got none has waited
// as long as Config says.
func (p *FlightSQLPool) beginTx(ctx context.Context, _ TxOptions, verified bool) (_ *Tx, reached bool, _ error) {
	s, err := p.acquireSession(ctx, "BeginTx", verified)
	if err != nil {
		return nil, false, err
	}
	tx := &Tx{s: s}
	begun := false
	defer func() {
		if !begun {
			tx.giveBack(ctx)
		}
	}()
	if err = s.BeginTransaction(ctx); err != nil {
		return nil, true, err
	}
	begun = true
	return tx, true, nil
}

// InTx calls fn in a transaction, commits it when fn returns nil, and rolls it back
// when fn fails or panics. Its error is that of fn, or of the commit. A transaction that
// has lost a conflict with another (see IsConflict), by the error of fn or at its
// commit, is rolled back and run again after a pause, see TxOptions.Attempts and
// Hooks.Retried. So fn must have no other effects, makes the readers whose rows it loads, and the iterators of IngestRows that give
// theirs once, and should return the errors of its statements, wrapped or not. It neither commits nor rolls back: where it has, InTx fails,
// with ErrCommitUnknown unless its Commit has said that nothing is stored.
//
// Nothing is run again when the outcome of the commit is unknown (ErrCommitUnknown),
// when the connection was lost or fn has ended the transaction, or once ctx has ended.
// Then, too, an error that is not ErrCommitUnknown says that nothing is stored, but for what
// SessionHandle.Commit says of ErrSessionLost on servers that leave a transaction by
// themselves or replace its session: a job may call InTx again.
func (p *FlightSQLPool) InTx(ctx context.Context, opts TxOptions, fn func(ctx context.Context, tx *Tx) error) error {
	attempts := cmp.Or(opts.Attempts, 6)
	if p.cfg.DisableRetry {
		attempts = 1
	}
	used := &usedup.Sources{}
	for attempt := 1; ; attempt++ {
		undone, err := p.inTxOnce(ctx, opts, used, fn)
		if !undone || !IsConflict(err) {
			return err
		}
		if attempt == attempts {
			return fmt.Errorf("attempt %d of the transaction: %w", attempt, err)
		}
		// Anything up to the bound: those who collided must not meet again.
		if backoff.Sleep(ctx, rand.N(backoff.Doubled(conflictPause, longestConflictPause, attempt-1))+1) != nil {
			return errjoin.Join(ctxerr.Of(ctx), err)
		}
		p.retried("InTx", err)
		used.NextRun()
	}
}

// inTxOnce is one attempt. undone says that InTx itself has ended the transaction, and
// not by a commit: then IsConflict tells of err whether something may be stored.
func (p *FlightSQLPool) inTxOnce(ctx context.Context, opts TxOptions, used *usedup.Sources, fn func(context.Context, *Tx) error) (undone bool, err error) {
	tx, err := p.BeginTx(ctx, opts)
	if err != nil {
		return true, err
	}
	tx.used = used
	defer func() { // also when fn has panicked, or the commit was refused before it was sent
		if undo := tx.Rollback(ctx); undo != nil {
			undone, err = false, errjoin.Join(err, undo)
		}
		if err != nil && tx.commits.Load() > 0 { // of fn, or of a goroutine that it has left
			undone, err = false, fmt.Errorf("%w: its function has called Commit: %w", ErrCommitUnknown, err)
		}
	}()
	err = fn(ctx, tx)
	switch {
	case tx.ended.Load():
		return false, errjoin.Join(badArgument("InTx", "", "its function has ended the transaction"), err)
	case err == nil:
		err = tx.commit(ctx)
	}
	return err != nil, err
}

// WithSession calls fn with a connection of its own, and gives it back when fn returns
// or panics: see AcquireSession.
func (p *FlightSQLPool) WithSession(ctx context.Context, fn func(ctx context.Context, s *SessionHandle) error) error {
	s, err := p.AcquireSession(ctx)
	if err != nil {
		return err
	}
	defer s.CloseWithin(ctx)
	return fn(ctx, s)
}

// Query is FlightSQLPool.Query in the transaction, without repetition.
func (t *Tx) Query(ctx context.Context, sql string, args ...any) (*QueryResult, error) {
	return t.s.Query(ctx, sql, args...)
}

// QueryRow is FlightSQLPool.QueryRow in the transaction.
func (t *Tx) QueryRow(ctx context.Context, sql string, args ...any) *Row {
	return t.s.QueryRow(ctx, sql, args...)
}

// Execute is FlightSQLPool.Execute in the transaction.
func (t *Tx) Execute(ctx context.Context, sql string, args ...any) (*QueryResult, error) {
	return t.s.Execute(ctx, sql, args...)
}

// Update is FlightSQLPool.Update in the transaction.
func (t *Tx) Update(ctx context.Context, sql string, args ...any) (UpdateResult, error) {
	return t.s.Update(ctx, sql, args...)
}

// QueryWithOptions is Query with options.
func (t *Tx) QueryWithOptions(ctx context.Context, sql string, opts QueryOptions) (*QueryResult, error) {
	return t.s.QueryWithOptions(ctx, sql, opts)
}

// UpdateWithOptions is Update with options.
func (t *Tx) UpdateWithOptions(ctx context.Context, sql string, opts QueryOptions) (UpdateResult, error) {
	return t.s.UpdateWithOptions(ctx, sql, opts)
}

// Ingest is FlightSQLPool.Ingest in the transaction: its rows are stored with it. In a function of InTx the reader is
// made there: where that runs again, one whose rows an attempt before has taken fails.
func (t *Tx) Ingest(ctx context.Context, table string, rows array.RecordReader, opts IngestOptions) (int64, error) {
	n, err := t.s.Ingest(ctx, table, t.rowsOnce(rows), opts)
	t.noteRows(rows, n, err)
	return n, err
}

// PrepareQuery prepares a statement for several executions in the transaction. It ends
// with it.
func (t *Tx) PrepareQuery(ctx context.Context, sql string) (*PreparedQuery, error) {
	return t.s.PrepareQuery(ctx, sql)
}

// Savepoint marks a point to roll back to, see SessionHandle.Savepoint.
func (t *Tx) Savepoint(ctx context.Context, name string) error { return t.s.Savepoint(ctx, name) }

// RollbackTo undoes what came after the savepoint, see SessionHandle.RollbackTo.
func (t *Tx) RollbackTo(ctx context.Context, name string) error { return t.s.RollbackTo(ctx, name) }

// ReleaseSavepoint forgets a savepoint, see SessionHandle.ReleaseSavepoint.
func (t *Tx) ReleaseSavepoint(ctx context.Context, name string) error {
	return t.s.ReleaseSavepoint(ctx, name)
}

// Commit makes the transaction durable and gives the connection back. It answers nil
// only when the server has committed this transaction. ErrTxAborted: nothing of it is
// stored. ErrCommitUnknown: whether it is stored cannot be known, for example because
// ctx ended first. ErrBusy: a result is open still; release it and commit again. What
// SessionHandle.Commit says of the rest holds here.
func (t *Tx) Commit(ctx context.Context) error {
	t.commits.Add(1)
	err := t.commit(ctx)
	if err != nil && !errors.Is(err, ErrCommitUnknown) {
		t.commits.Add(-1)
	}
	return err
}

func (t *Tx) commit(ctx context.Context) error {
	busy := false
	defer func() { // also when a method of ctx panics
		if !busy {
			t.giveBack(ctx)
		}
	}()
	err := t.s.Commit(ctx)
	var e *Error
	unsent := errors.As(err, &e) && e.Unsent && !errors.Is(err, ErrSessionLost)
	busy = unsent && e.Fault == FaultUsage && errors.Is(e.Err, ErrBusy) // else it is in what has aborted the transaction, or why ctx has ended
	if unsent && !busy {
		err = errjoin.Join(err, t.s.RollbackOpen(ctx))
	}
	return err
}

// Rollback undoes the transaction, ends what is under way in it, a result that was not
// released for example, and gives the connection back. After Commit, or a second time,
// it does nothing and answers nil. When ctx has ended it returns at once and the
// rollback goes on behind it. ErrCommitUnknown: the server had left the transaction by
// itself, so that statements of it may be stored, or is one that may have (SwanLake), and
// the rollback has failed or was not answered.
func (t *Tx) Rollback(ctx context.Context) error {
	if t.ended.Load() {
		return nil
	}
	defer t.giveBack(ctx)
	return t.s.RollbackOpen(ctx)
}

func (t *Tx) giveBack(ctx context.Context) {
	t.ended.Store(true)
	t.s.CloseWithin(ctx)
}
