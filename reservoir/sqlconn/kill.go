package sqlconn

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/ctxerr"
)

// errClosedByDriver is why a connection is lost that its driver closed because a
// statement's context ended, or because of a call beside open rows. It says nothing about
// the server, so it wraps neither the context's error nor driver.ErrBadConn.
var errClosedByDriver = errors.New("sqlconn: the driver closed the connection when the context of a statement ended, or at a call made while rows were open")

// killTimeout bounds an attempt to stop a statement on the server.
const killTimeout = 5 * time.Second

// statement is the latest one of a connection.
type statement struct {
	ctxErr func() error // its context's
	kill   func()
}

// setLatest remembers the statement that a dead connection is judged by.
func (c *Conn) setLatest(ctx context.Context) {
	c.latestStatement.Store(&statement{ctxErr: ctx.Err, kill: func() { c.killSession(ctx) }})
}

// recordFailure takes note of an error that tells the end of the connection. The
// statement that a driver has given up goes on at the server, so it is stopped.
func (c *Conn) recordFailure(ctx context.Context, err error) {
	switch {
	case errors.Is(err, errClosing):
		return
	case (endedByContext(ctx, err) || c.refused.Load()) && (brokeBeside(ctx, err) || !c.valid()):
		err = errClosedByDriver
	case brokeBeside(ctx, err):
	case c.valid():
		return
	default: // the driver's own word for it
		err = fmt.Errorf("%w: %w", driver.ErrBadConn, err)
	}
	if c.lost.CompareAndSwap(nil, &err) && errors.Is(err, errClosedByDriver) {
		c.killInBackground(func() { c.killSession(ctx) })
	}
}

// endedByContext reports whether err was caused by the end of ctx. Drivers close or
// time out the socket then, which looks like a fault of the server. An error with an
// SQLSTATE came from the server itself, and was not.
func endedByContext(ctx context.Context, err error) bool {
	var state interface{ SQLState() string }
	if errors.As(err, &state) && !tellsCause(ctx, err) {
		return false
	}
	if ctx.Err() != nil {
		return true
	}
	var timeout net.Error
	return ctxerr.IsDue(ctx.Deadline) && errors.As(err, &timeout) && timeout.Timeout()
}

// tellsCause reports whether err has the cause of the end of ctx, which may be any error, such as what a call on another
// database has failed with: what it says of a server is not of this one.
func tellsCause(ctx context.Context, err error) bool {
	ended, cause := ctx.Err(), context.Cause(ctx)
	return ended != nil && cause != ended && errors.Is(err, cause) //nolint:errorlint // without one Cause is the very error of ctx
}

// brokeBeside is Broken of what err says beside the cause of the end of ctx.
func brokeBeside(ctx context.Context, err error) bool { return !tellsCause(ctx, err) && Broken(err) }

func (c *Conn) valid() bool {
	if _, ok := c.raw.(driver.Validator); !ok {
		return true
	}
	valid, err := catchPanic(c, c.askValidator)
	return valid && err == nil || errors.Is(err, errClosing) // recordDeath asks then
}

func (c *Conn) askValidator() (bool, error) {
	v, ok := c.raw.(driver.Validator)
	return !ok || v.IsValid(), nil
}

// recordDeath takes note of what the driver says of a connection that takes no calls any more.
func (c *Conn) recordDeath() {
	var a callback.Attempt[bool]
	if a.Run(c.askValidator); !a.Value {
		died := c.deathError()
		c.lost.CompareAndSwap(nil, &died)
	}
}

// killInBackground begins to stop the latest statement. Close waits for it.
func (c *Conn) killInBackground(stop func()) {
	if c.sessionID == "" || c.killing.Swap(true) {
		return
	}
	go callback.Guard(theDriver, func() error { stop(); return nil }, func(error) { close(c.killDone) })
}

// awaitKill sees to it that no statement of a connection that was cut runs on.
func (c *Conn) awaitKill() {
	if latest := c.latestStatement.Load(); latest != nil && errors.Is(c.lostError(), errClosedByDriver) {
		c.killInBackground(latest.kill)
	}
	if c.killing.Load() {
		<-c.killDone
	}
}

// killSession ends the session on the server from another one, which it opens for that,
// with ctx's values. A number means something on its own server alone, until that is
// restarted, and behind one address there may be several: nothing is ended on another.
func (c *Conn) killSession(ctx context.Context) {
	t := c.lifecycle
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
	defer cancel()
	err := func() error {
		other, err := t.connect(ctx)
		if err != nil {
			return err
		}
		defer other.raw.Close() //nolint:errcheck // it has done its work
		if other.serverID != c.serverID {
			return fmt.Errorf("sqlconn: stop: the session is on %s, and this is %s", c.serverID, other.serverID)
		}
		other.sessionID = "" // it is not itself worth stopping
		if err := t.checkUptime(ctx, other, c.openedAt); err != nil {
			return err
		}
		err = t.run(ctx, other, fmt.Sprintf(t.cfg.Kind.StopSQL, c.sessionID))
		if gone := t.cfg.Kind.IsSessionGone; err != nil && gone != nil && gone(err) {
			return nil
		}
		return err
	}()
	if t.cfg.Stopped != nil {
		t.cfg.Stopped(err)
	}
}

// uptimeGrain is by how much a server that counts full seconds may have run for longer,
// or less long, than it says.
const uptimeGrain = time.Second

// checkUptime refuses a server that was started after a session of it was opened: it is
// not the one that has numbered that session.
func (t *Lifecycle) checkUptime(ctx context.Context, other *Conn, opened time.Time) error {
	query := t.cfg.Kind.UptimeSQL
	if query == "" {
		return nil
	}
	// The monotonic clock stands still while a machine is suspended.
	age := max(time.Since(opened), time.Now().Round(0).Sub(opened.Round(0)))
	up, err := other.askSeconds(ctx, query)
	switch {
	case err != nil:
		return fmt.Errorf("sqlconn: stop: %s: %w", query, err)
	case age-uptimeGrain > up:
		return fmt.Errorf("sqlconn: stop: the session is %v old, and its server runs for %v", age.Round(time.Millisecond), up)
	}
	return nil
}

// askSeconds asks for one row, and reads a number of seconds from its last column.
func (c *Conn) askSeconds(ctx context.Context, query string) (up time.Duration, err error) {
	err = c.runInternal(ctx, func(conn *sql.Conn) error {
		rows, err := conn.QueryContext(ctx, query)
		if err != nil {
			return err
		}
		defer rows.Close() //nolint:errcheck // its error is that of Err
		if !rows.Next() {
			return cmp.Or(rows.Err(), sql.ErrNoRows)
		}
		up, err = lastColumn(rows)
		return err
	})
	return up, err
}

// lastColumn reads a number of seconds.
func lastColumn(rows *sql.Rows) (time.Duration, error) {
	columns, err := rows.Columns()
	if err != nil {
		return 0, err
	}
	var seconds int64
	values := make([]any, len(columns))
	for i := range values {
		values[i] = new(any)
	}
	values[len(values)-1] = &seconds
	err = rows.Scan(values...)
	return time.Duration(seconds) * time.Second, err
}

// identify asks a new session who and where it is.
func (c *Conn) identify(ctx context.Context) error {
	query := c.lifecycle.cfg.Kind.IdentifySQL
	if query == "" {
		return nil
	}
	return c.runInternal(ctx, func(conn *sql.Conn) error {
		if err := conn.QueryRowContext(ctx, query).Scan(&c.sessionID, &c.serverID); err != nil {
			return fmt.Errorf("sqlconn: %s: %w", query, err)
		}
		return nil
	})
}
