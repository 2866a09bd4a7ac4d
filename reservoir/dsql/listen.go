package dsql

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/lease"
)

// listen has the cluster close all connections when its leases are revoked, until stopListening. They
// may be the program's own.
func (c *Cluster) listen() error {
	return callback.Isolate(theLeases, func() error {
		if revoker, ok := c.budgets.leases.(lease.Revoker); ok {
			c.stopListening = revoker.OnRevoke(c.onRevoked)
		}
		return nil
	})
}

// giveUp gives up connections for others, as a lease.Holder does. A pool above has those on loan.
func (c *Cluster) giveUp(n int) (closing int) {
	<-c.started
	if c.giveUpAbove.Load() == nil {
		return c.res.GiveUp(n)
	}
	closing = min(n, c.res.Stats().Closing)
	closing += c.res.CloseIdle(n-closing, 0)
	return closing + c.giveUpOnLoan(n-closing) // also for none: what it has promised before is over then
}

// wantedPermissions is how many opens still want the permission that they wait for.
func (c *Cluster) wantedPermissions() int {
	<-c.started
	return c.res.WantedPermissions()
}

// giveUpOnLoan has a pool above give up n connections.
func (c *Cluster) giveUpOnLoan(n int) (closing int) {
	if above := c.giveUpAbove.Load(); above != nil {
		if err := callback.Isolate(theLeases, func() error { closing = min(n, (*above)(n)); return nil }); err != nil {
			c.log.Error("a function of OnReclaim failed", "error", err)
		}
	}
	return closing
}

// OnReclaim is for a pool above the Cluster, which keeps connections on loan that nobody uses: f is
// called as NewHolder of package lease has it, with what the Cluster does not have idle itself, which may be nothing, where
// others, of the fleet or the process, are or were short of connections; and for all where leases are revoked, when that
// is told and, unless f has answered math.MaxInt, at its deadline, by which what is on loan is cut. A later call takes the place of this; stop ends it.
func (c *Cluster) OnReclaim(f func(n int) (closing int)) (stop func()) {
	c.giveUpAbove.Store(&f)
	return func() { c.giveUpAbove.CompareAndSwap(&f, nil) }
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
	var all atomic.Bool // the pool above has given all up that there was
	time.AfterFunc(time.Until(r.Deadline), func() {
		for _, p := range doomed {
			p.abort() // closing a closed socket does nothing
		}
		force(r.Cause) // those that were opened meanwhile, too, and no lease waits for a borrower
		if !all.Load() {
			c.giveUpOnLoan(math.MaxInt) // what came back meanwhile, and is lent to nobody
		}
	})
	all.Store(c.giveUpOnLoan(math.MaxInt) == math.MaxInt) // it may not return: the deadline does not wait for it
}
