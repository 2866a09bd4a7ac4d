package dsql

import (
	"fmt"
	"time"

	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/lease"
)

// listen has the cluster do what its leases ask for, until stopListening. They may be the program's own.
func (c *Cluster) listen() error {
	return callback.Isolate(theLeases, func() error {
		if revoker, ok := c.budgets.leases.(lease.Revoker); ok {
			c.stopListening = revoker.OnRevoke(c.onRevoked)
		}
		if reclaimer, ok := c.budgets.leases.(lease.Reclaimer); ok { // others are short of what is idle here
			stopRevokes, stop := c.stopListening, reclaimer.OnReclaim(func(n int) int { return c.res.CloseIdle(n, 0) })
			c.stopListening = func() { defer stop(); stopRevokes() }
		}
		return nil
	})
}

// giveUpIdle closes up to n idle connections for which others of the process wait.
func (c *Cluster) giveUpIdle(n int) (closing int) {
	<-c.started
	return c.res.CloseIdle(n, 0)
}

const theLeases = "dsql: Leases"

// endListening calls stopListening.
func (c *Cluster) endListening() error {
	stopping := callback.Go(callback.NoValue(func() error { c.stopListening(); return nil }))
	if !callback.EndsWithin(stopping.Done, c.cfg.CloseTimeout) {
		return fmt.Errorf("dsql: the Leases have not let go of the cluster within CloseTimeout %v", c.cfg.CloseTimeout)
	}
	return stopping.Failure(theLeases)
}

// onRevoked closes every connection: the idle ones now, those in use when they
// come back, at the latest at the deadline.
func (c *Cluster) onRevoked(r lease.Revocation) {
	c.log.Warn("the fleet's leases are revoked", "deadline", r.Deadline, "error", r.Cause)
	c.mu.Lock()
	doomed := make([]*physical, 0, len(c.openConns))
	for p := range c.openConns {
		doomed = append(doomed, p)
	}
	c.mu.Unlock()
	force := c.res.Recall()
	time.AfterFunc(time.Until(r.Deadline), func() {
		for _, p := range doomed {
			p.abort() // closing a closed socket does nothing
		}
		force(r.Cause) // those that were opened meanwhile, too, and no lease waits for a borrower
	})
}
