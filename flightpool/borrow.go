package flightpool

import (
	"context"
	"errors"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/ctxerr"
	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/session"
)

// lend borrows a connection for one stateless call.
func (p *FlightSQLPool) lend(ctx context.Context, call session.PoolCall, verified bool) (*SessionHandle, error) {
	began := call.Trace.Now()
	loan, err := p.borrow(ctx, call.Op, verified)
	call.Trace.Waited(began)
	if err != nil {
		return nil, err
	}
	return session.NewTraced(loan.Value(), p.policy, call, p.tracing.onRelease(ctx, p.target, loan.ConnectionID(), p.returnLoan(loan))), nil
}

// borrow is takeConn for the call op. A tracer that ends the goroutine keeps no
// connection.
func (p *FlightSQLPool) borrow(ctx context.Context, op string, verified bool) (loan reservoir.Loan[backend.Conn], err error) {
	ctx, traced := p.tracing.startAcquire(ctx, op, p.target)
	err = errCallerGone
	told := false
	defer func() {
		defer func() {
			if !told && err == nil {
				_ = loan.Release()
			}
		}()
		traced(loan.ConnectionID(), err)
		told = true
	}()
	began := time.Now()
	if loan, err = p.takeConn(ctx, verified); err != nil {
		return loan, p.acquireError(ctx, op, err)
	}
	p.times.wait.Add(time.Since(began))
	return loan, nil
}

// takeConn takes a connection whose transport lives; with verified, one that has just
// answered a ping. Dead ones on the way are dropped.
func (p *FlightSQLPool) takeConn(ctx context.Context, verified bool) (reservoir.Loan[backend.Conn], error) {
	for tries := 0; ; tries++ {
		if p.closing.Load() {
			return reservoir.Loan[backend.Conn]{}, ErrClosed
		}
		loan, ok := p.conns.TryAcquire()
		if !ok {
			var err error
			if loan, err = p.waitForConn(ctx); err != nil {
				return loan, err
			}
		}
		err := p.checkBorrowed(ctx, loan, verified)
		if err == nil {
			return loan, nil
		}
		if ctx.Err() != nil || tries > p.conns.Stats().MaxSize {
			return reservoir.Loan[backend.Conn]{}, err
		}
	}
}

var errCallerGone = errors.New("the caller's context has ended the goroutine")

// checkBorrowed reports whether the connection of a loan can be used: by a ping, with
// verified or where its credential is in doubt. After an error the loan has been given
// back, or is when the check has ended that the caller did not wait for: a connection that
// answers late is good for others.
func (p *FlightSQLPool) checkBorrowed(ctx context.Context, loan reservoir.Loan[backend.Conn], verified bool) error {
	c := loan.Value()
	if err := c.Lost(); err != nil {
		_ = loan.Discard(err) // it was ours to discard
		return err
	}
	if d, ok := c.(backend.CredentialDoubter); ok && d.CredentialInDoubt() {
		verified = true
	}
	if !verified && !p.policy.Kept.MustProve(c) {
		return nil
	}
	var check *callback.Call[struct{}]
	waited := false
	defer func() { // also when a method of ctx panics
		switch {
		case waited:
		case check == nil:
			_ = loan.Release()
		default:
			p.background.Go(func() {
				<-check.Done
				p.returnLoan(loan)(check.Failure(userCode))
			})
		}
	}()
	gone := ctx.Done()
	check = callback.Go(callback.NoValue(func() error { return p.verify(context.WithoutCancel(ctx), c, verified) }))
	select {
	case <-check.Done:
	case <-gone:
		return ctxerr.Of(ctx)
	}
	waited = true
	err := check.Failure(userCode)
	if err != nil {
		_ = loan.Discard(err)
	}
	return err
}

// waitForConn waits for a connection. A call that was the trial of an unhealthy server
// and leaves before anything was tried, since its ctx has ended, leaves the trial
// to the next.
func (p *FlightSQLPool) waitForConn(ctx context.Context) (loan reservoir.Loan[backend.Conn], err error) {
	trial, err := p.allowWait()
	if err != nil {
		return loan, err
	}
	acquired := false
	defer func() { // also when a method of the ctx has ended the goroutine
		if !acquired && p.conns.Stats().Opening == 0 {
			trial.returnUnused()
		}
	}()
	loan, err = p.conns.Acquire(ctx)
	acquired = err == nil
	return loan, err
}

// returnLoan gives a loan, which begins now, back as the session has found its connection.
func (p *FlightSQLPool) returnLoan(loan reservoir.Loan[backend.Conn]) func(error) {
	began := time.Now()
	return func(discard error) {
		p.times.hold.Add(time.Since(began))
		// A loan that Close has taken back by force is not out any more;
		// there is nothing else to do about it.
		if discard != nil {
			_ = loan.Discard(discard)
			return
		}
		_ = loan.Release()
	}
}
