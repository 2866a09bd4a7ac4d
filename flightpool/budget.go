package flightpool

import (
	"context"
	"fmt"
	"time"

	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/lease"
)

// admitByBudgets asks Leases and Limiter for an open, nil where there are none. Others of the
// process or fleet that wait for Leases are given what is above the pool's share.
func (p *FlightSQLPool) admitByBudgets() func(context.Context) (release func(), err error) {
	if p.cfg.Leases == nil && p.cfg.Limiter == nil {
		return nil
	}
	admit, self := lease.Admit(p.cfg.Leases, p.cfg.Limiter), lease.NewHolder(func(n int) int {
		<-p.connsSet
		return p.conns.GiveUp(n)
	}).Wanting(func() int {
		<-p.connsSet
		return p.conns.WantedPermissions()
	})
	return func(ctx context.Context) (func(), error) { return admit(lease.WithHolder(ctx, self)) }
}

// followLeases has the pool close all connections when its leases are revoked. life ends with the
// pool. stopFollowing ends it.
func (p *FlightSQLPool) followLeases(life context.Context) error {
	p.stopFollowing = func() {}
	return callback.Isolate(userCode, func() error {
		if revoker, ok := p.cfg.Leases.(lease.Revoker); ok {
			p.stopFollowing = revoker.OnRevoke(func(r lease.Revocation) { p.revoked(life, r) })
		}
		return nil
	})
}

// endFollowing calls stopFollowing, which is code of the user's.
func (p *FlightSQLPool) endFollowing() error {
	stopping := callback.Go(callback.NoValue(func() error { p.stopFollowing(); return nil }))
	if !callback.EndsWithin(stopping.Done, p.cfg.CloseTimeout) {
		return fmt.Errorf("the Leases have not let go of the pool within CloseTimeout %v", p.cfg.CloseTimeout)
	}
	return stopping.Failure(userCode)
}

// revoked closes every connection: the idle ones now, those in use when they come back, at
// the latest so long before the deadline as a close may take: by then others may have the
// leases. Half of the time is the borrowers' in any case.
func (p *FlightSQLPool) revoked(life context.Context, r lease.Revocation) {
	if log := p.cfg.Logger; log != nil {
		p.callHook(func() {
			log.Warn("flightpool: the fleet's leases are revoked", "target", p.target, "deadline", r.Deadline, "error", r.Cause)
		})
	}
	force := p.conns.Recall()
	p.background.Go(func() {
		left := time.Until(r.Deadline)
		late := time.NewTimer(left - max(0, min(p.cfg.CloseTimeout, left/2)))
		defer late.Stop()
		select {
		case <-late.C:
			force(r.Cause)
		case <-life.Done():
		}
	})
}
