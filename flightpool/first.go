package flightpool

import (
	"context"
	"errors"
	"time"

	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/reservoir"
)

// abandonGrace is how much longer than its context New stays to see the opens end that
// it has begun: those that heed their contexts do so at once.
const abandonGrace = 50 * time.Millisecond

// abandonNew ends a pool that New does not return, and goes on behind the caller
// whose ctx has ended.
func (p *FlightSQLPool) abandonNew(ctx, life context.Context) error {
	closing := callback.Go(callback.NoValue(func() error {
		bounded, cancel := context.WithTimeout(life, p.cfg.CloseTimeout)
		defer cancel()
		return p.closeAll(bounded)
	}))
	if !closing.Wait(ctx, abandonGrace) {
		return errors.New("opens that do not heed their contexts go on behind New")
	}
	closing.Resume()
	return closing.Err
}

// waitFirstConn waits for the first connection, until ctx ends or an open has failed; a
// failed open ends it only by OpenRetry, not because ctx has no deadline.
func (p *FlightSQLPool) waitFirstConn(ctx context.Context) error {
	for {
		loan, err := p.conns.Acquire(withoutDeadline{ctx})
		if err == nil {
			return p.releaseUntil(ctx, loan)
		}
		var full *reservoir.ExhaustedError
		if ctx.Err() != nil || !errors.As(err, &full) {
			return err
		}
		goesOn := p.cfg.OpenRetry == OpenRetryAlways && p.cfg.OnExhausted != FailFast
		if full.LastOpen != nil && !goesOn {
			return err
		}
		// Only AcquireTimeout is over, which bounds calls of a pool.
	}
}

// withoutDeadline is a context that ends with its parent and tells no deadline, so that
// OpenRetryTimed does not let it wait.
type withoutDeadline struct{ context.Context } //nolint:containedctx // it is one

func (withoutDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }
