package dsql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flightpool/flightpool/internal/backoff"
	"github.com/flightpool/flightpool/internal/ctxerr"
	"github.com/flightpool/flightpool/internal/errjoin"
)

// OCCPolicy says how often and how fast transactions that lost a conflict run
// again. The zero value of a field is its default.
type OCCPolicy struct {
	// Attempts is how often the transaction runs at most: 6 by default;
	// negative: until ctx ends.
	Attempts int
	// Pause is the upper bound of the first pause: 20ms by default. It doubles
	// with each.
	Pause time.Duration
	// MaxPause is the upper bound of all: 2s by default.
	MaxPause time.Duration
	// OnRetry is told of each conflict after which the transaction runs again.
	// Optional.
	OnRetry func(attempt int, err error, pause time.Duration)
}

// RetryOCC calls f, and calls it again after a pause when DSQL refused its
// transaction because another was faster (40001, OC000, OC001). f must begin
// and commit the transaction itself, and have no other effects. It is not
// called again when the outcome of a commit is not known (ErrCommitUnknown), nor
// after ctx has ended. The last error is returned; after too many conflicts it
// is an *OCCError.
func RetryOCC(ctx context.Context, f func(context.Context) error) error {
	return OCCPolicy{}.Do(ctx, f)
}

// Do is RetryOCC with this policy.
func (p OCCPolicy) Do(ctx context.Context, f func(context.Context) error) error {
	p.Attempts = cmp.Or(p.Attempts, 6)
	p.Pause = cmp.Or(max(0, p.Pause), 20*time.Millisecond)
	p.MaxPause = cmp.Or(max(0, p.MaxPause), 2*time.Second)
	for attempt := 1; ; attempt++ {
		err := f(ctx)
		switch {
		case err == nil, !IsConflict(err):
			return err
		case attempt == p.Attempts:
			return &OCCError{Attempts: attempt, Err: err}
		case ctx.Err() != nil:
			return &OCCError{Attempts: attempt, Err: errjoin.Join(err, ctxerr.Of(ctx))}
		}
		// Anything up to the bound: whoever collided must not meet again.
		pause := rand.N(backoff.Doubled(p.Pause, p.MaxPause, attempt-1)) + 1
		if p.OnRetry != nil {
			p.OnRetry(attempt, err, pause)
		}
		if backoff.Sleep(ctx, pause) != nil {
			return &OCCError{Attempts: attempt, Err: errjoin.Join(err, ctxerr.Of(ctx))}
		}
	}
}

// A SQLBeginner begins transactions of database/sql: *sql.DB, *sql.Conn, and what
// embeds them.
type SQLBeginner interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// InTx calls f in a transaction of database/sql, commits it, and does all of it
// again after a conflict, as RetryOCC does. When f fails or panics, the transaction
// is rolled back. f must neither commit nor roll back, and have no effects besides:
// where it has ended the transaction, InTx fails with ErrCommitUnknown. opts may be nil.
func InTx(ctx context.Context, db SQLBeginner, opts *sql.TxOptions, f func(*sql.Tx) error) error {
	return OCCPolicy{}.InTx(ctx, db, opts, f)
}

// begunKey marks the context of a BeginTx with the place where a connection of ours puts
// the transaction: database/sql does not tell of one whose context has ended whether it was
// committed before.
type begunKey struct{}

// InTx is the function InTx with this policy.
func (p OCCPolicy) InTx(ctx context.Context, db SQLBeginner, opts *sql.TxOptions, f func(*sql.Tx) error) error {
	return p.Do(ctx, func(ctx context.Context) error {
		begun := &atomic.Pointer[tx]{}
		committed := func() bool { t := begun.Load(); return t != nil && t.commits.Load() > 0 }
		tx, err := db.BeginTx(context.WithValue(ctx, begunKey{}, begun), opts)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // where f has panicked
		end := tx.Commit
		if err = f(tx); err != nil {
			end = tx.Rollback
		}
		ended := end()
		if errors.Is(ended, sql.ErrTxDone) && (ctx.Err() == nil || committed()) { // by f, or by a goroutine that it has left
			return mayBeStored(cmp.Or(err, ended))
		}
		return cmp.Or(err, ended)
	})
}

// mayBeStored is the error of a transaction that its function may have committed.
func mayBeStored(err error) error {
	if errors.Is(err, ErrCommitUnknown) {
		return err
	}
	return fmt.Errorf("%w: its function has ended the transaction: %w", ErrCommitUnknown, err)
}

// IsConflict says whether a transaction failed because another one was faster,
// was not committed, and can run again.
func IsConflict(err error) bool {
	if errors.Is(err, ErrCommitUnknown) {
		return false
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	return pg.Code == "40001" || pg.Code == "OC000" || pg.Code == "OC001"
}

// OCCError is a transaction that lost every time.
type OCCError struct {
	// Attempts is how often it ran.
	Attempts int
	// Err is the last conflict, with the context's error if that ended it.
	Err error
}

func (e *OCCError) Error() string {
	return fmt.Sprintf("dsql: the transaction conflicted %d times: %v", e.Attempts, e.Err)
}

// Unwrap gives Err.
func (e *OCCError) Unwrap() error { return e.Err }
