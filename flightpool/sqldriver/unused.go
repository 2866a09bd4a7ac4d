package sqldriver

import (
	"context"
	"sync"
	"time"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/badconn"
)

// unusedFor is how long a connection that no call has used keeps its session. With SetMaxOpenConns
// database/sql opens connections for who waits, keeps for later the one whose caller has got another or has
// left, and does not ask that one whether it is valid.
const unusedFor = time.Second

// unused is the session of a connection that no call has used yet.
type unused struct {
	mu      sync.Mutex
	timer   *time.Timer
	session *flightpool.SessionHandle // nil once it is given back, or a call's
}

// hold takes s, for unusedFor.
func (u *unused) hold(s *flightpool.SessionHandle) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.session, u.timer = s, time.AfterFunc(unusedFor, u.giveBack)
}

// take is the session, or nil if it is given back.
func (u *unused) take() *flightpool.SessionHandle {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.timer.Stop()
	s := u.session
	u.session = nil
	return s
}

// giveBack gives the session back if no call has it.
//
// INVARIANT: it does not wait for the server. database/sql may call Close with its lock held.
func (u *unused) giveBack() {
	if s := u.take(); s != nil {
		ended, end := context.WithCancel(detached())
		end()
		s.CloseWithin(ended)
	}
}

// use makes sure that the connection has a session: that with which it was opened, or another.
func (c *conn) use(ctx context.Context, op string) (err error) {
	if c.handle != nil {
		return nil
	}
	if c.handle = c.unused.take(); c.handle == nil {
		c.handle, err = contain(op, func() (*flightpool.SessionHandle, error) { return c.pool.AcquireSession(ctx) })
	}
	return badconn.Hide(err)
}
