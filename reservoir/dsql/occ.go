package dsql

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
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
	bound := min(p.Pause, p.MaxPause)
	for attempt := 1; ; attempt++ {
		err := f(ctx)
		switch {
		case err == nil, !IsConflict(err):
			return err
		case attempt == p.Attempts:
			return &OCCError{Attempts: attempt, Err: err}
		}
		// Anything up to the bound: whoever collided must not meet again.
		pause := rand.N(bound) + 1
		if p.OnRetry != nil {
			p.OnRetry(attempt, err, pause)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return &OCCError{Attempts: attempt, Err: errors.Join(err, context.Cause(ctx))}
		}
		bound = min(2*bound, p.MaxPause)
	}
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
