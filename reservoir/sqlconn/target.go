package sqlconn

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/ctxerr"
	"github.com/flightpool/flightpool/reservoir"
)

// CheckKind is what Lifecycle.Check does.
type CheckKind uint8

// The kinds of check.
const (
	// Ping asks the driver for a round trip; where the driver has none it is
	// Query.
	Ping CheckKind = iota
	// Query runs the health query and reads its result.
	Query
	// FullValidate resets the session and then runs the health query.
	FullValidate
)

// Config says how a Lifecycle makes and checks its connections. Zero values are
// the defaults.
type Config struct {
	// Connector opens connections. Required. When it is an io.Closer, closing
	// it is its maker's affair.
	Connector driver.Connector
	// Kind is the sort of database.
	Kind Kind
	// Check is what a health check does (Ping).
	Check CheckKind
	// KeepState lets sessions keep what their borrowers left in them. An open
	// transaction is rolled back all the same.
	KeepState bool
	// QueryTimeout bounds each statement of a borrower, its rows included, before that
	// its preparation, and the waits for the begin and the end of a transaction (none).
	QueryTimeout time.Duration
	// Observe is told of each statement of a borrower: the time until the driver
	// answered, and its error. It must be quick and safe for concurrent use.
	Observe func(took time.Duration, err error)
	// Stopped is told, with nil, of a statement that was stopped on the server by
	// Kind.StopSQL, or why that failed, so that it may run on. Like Observe.
	Stopped func(err error)
}

// A Lifecycle opens, checks, resets and closes the connections of one connector.
// Its methods have the shape of reservoir.Config's functions. They may be
// called at the same time for different connections.
type Lifecycle struct {
	wrapper      *Wrapper
	cfg          Config
	queryTimeout atomic.Int64 // Config.QueryTimeout, or what was set since
}

// New makes a Lifecycle.
func New(wrapper *Wrapper, cfg Config) (*Lifecycle, error) {
	var faults []error
	if wrapper == nil {
		faults = append(faults, errors.New("sqlconn: Wrapper: required"))
	}
	if cfg.Connector == nil {
		faults = append(faults, errors.New("sqlconn: Connector: required"))
	}
	if cfg.Check > FullValidate {
		faults = append(faults, fmt.Errorf("sqlconn: Check: %d is unknown", cfg.Check))
	}
	cfg.Kind.HealthSQL = cmp.Or(cfg.Kind.HealthSQL, "SELECT 1")
	t := &Lifecycle{wrapper: wrapper, cfg: cfg}
	t.SetQueryTimeout(cfg.QueryTimeout)
	return t, errors.Join(faults...)
}

// SetQueryTimeout bounds the statements that begin from now on; 0 or less: none.
func (t *Lifecycle) SetQueryTimeout(d time.Duration) { t.queryTimeout.Store(int64(d)) }

var lastID atomic.Uint64

// Open makes one connection, which knows its number on the server if the kind has
// one. It returns at most 50ms after the end of ctx, even from a driver that does
// not look at its context; the connection that such a driver still makes is closed
// when it comes.
func (t *Lifecycle) Open(ctx context.Context) (*Conn, error) {
	c, err := t.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("sqlconn: open: %w", err)
	}
	return c, nil
}

func (t *Lifecycle) connect(ctx context.Context) (*Conn, error) {
	c, err := t.dial(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.bounded(ctx, c.identify); err != nil {
		closing := callback.Go(callback.NoValue(func() error { return t.Close(c) }))
		return nil, reservoir.StillClosing(err, closing.Done) // nobody waits for it, but the server has the session until then
	}
	return c, nil
}

func (t *Lifecycle) dial(ctx context.Context) (*Conn, error) {
	began := time.Now()
	a, inTime := callback.Within(ctx, returnGrace, func() (driver.Conn, error) {
		raw, err := t.cfg.Connector.Connect(ctx)
		if err == nil && raw == nil {
			err = errors.New("sqlconn: the driver made no connection")
		}
		return raw, err
	}, func(raw driver.Conn) { callInBackground(raw.Close) }, nil)
	if !inTime {
		return nil, ctxerr.Of(ctx)
	}
	err := a.Failure(theDriver)
	if gone := t.cfg.Kind.IsConnLost; err != nil && gone != nil && gone(err) {
		return nil, fmt.Errorf("%w: %w", driver.ErrBadConn, err)
	}
	if err != nil {
		return nil, err
	}
	return &Conn{lifecycle: t, raw: a.Value, id: lastID.Add(1), openedAt: began, killDone: make(chan struct{})}, nil
}

// Close ends the physical connection. It waits up to 5s for the end of a
// statement that its driver has given up, where the kind can stop it, and for a
// check or a reset that was given up, before it closes the connection under it. For any other
// call of the driver, such as a rollback that database/sql makes behind a borrower who has left,
// it waits 50ms.
func (t *Lifecycle) Close(c *Conn) error {
	givenUp := c.abandonedCall.Load() != nil // which is waited for below
	if !givenUp && c.calls.close(returnGrace) {
		c.recordDeath()
	}
	c.awaitKill()
	c.awaitAbandonedCall()
	closed := net.ErrClosed
	c.lost.CompareAndSwap(nil, &closed)
	return c.raw.Close()
}

// Check proves that the connection works, in the way that Config.Check says. Like
// Open it returns at most 50ms after the end of ctx; the connection is lost then.
func (t *Lifecycle) Check(ctx context.Context, c *Conn) error {
	if err := c.Lost(); err != nil {
		return err
	}
	return c.bounded(ctx, func(ctx context.Context) error { return t.runCheck(ctx, c) })
}

func (t *Lifecycle) runCheck(ctx context.Context, c *Conn) error {
	_, pings := c.raw.(driver.Pinger)
	if t.cfg.Check == Ping && pings {
		return c.runInternal(ctx, func(conn *sql.Conn) error { return conn.PingContext(ctx) })
	}
	if t.cfg.Check == FullValidate {
		if err := t.resetSession(ctx, c); err != nil {
			return err
		}
	}
	return c.runInternal(ctx, func(conn *sql.Conn) error { return t.runHealthQuery(ctx, conn) })
}

// Reset makes the session as good as new, or says why it cannot be. It does no
// I/O with a connection that is broken. It is bounded as Check is.
func (t *Lifecycle) Reset(ctx context.Context, c *Conn) error {
	if err := c.lostError(); err != nil {
		return err
	}
	if !t.cfg.KeepState && c.cannotReset.Load() {
		return fmt.Errorf("sqlconn: %s cannot take back all that the session left", t.cfg.Kind.Name)
	}
	if err := c.awaitLoanEnd(ctx); err != nil {
		return err
	}
	if err := c.Lost(); err != nil {
		return err
	}
	return c.bounded(ctx, func(ctx context.Context) error {
		if t.cfg.KeepState {
			return t.rollback(ctx, c)
		}
		return t.resetSession(ctx, c)
	})
}

// resetSession ends an open transaction, asks the driver for its own reset, which may
// refuse inside of one, and runs the kind's statements.
func (t *Lifecycle) resetSession(ctx context.Context, c *Conn) error {
	if err := t.rollback(ctx, c); err != nil {
		return err
	}
	if r, ok := c.raw.(driver.SessionResetter); ok {
		if err := catchPanicError(c, func() error { return r.ResetSession(ctx) }); err != nil {
			return fmt.Errorf("sqlconn: reset session: %w", err)
		}
	}
	if t.cfg.Kind.LeavesNoState != nil && !c.needsReset.Load() {
		return nil
	}
	if err := t.run(ctx, c, t.cfg.Kind.ResetSQL...); err != nil {
		return err
	}
	c.needsReset.Store(false)
	return nil
}

// rollback ends a transaction that may be open. Servers of an unknown kind may refuse
// that where none is: when one can be begun and rolled back, none was. ROLLBACK goes
// first each time, for elsewhere BEGIN would commit what is open.
func (t *Lifecycle) rollback(ctx context.Context, c *Conn) error {
	sql := t.cfg.Kind.RollbackSQL
	if sql != "" {
		return t.run(ctx, c, sql)
	}
	err := t.run(ctx, c, rollbackSQL)
	if err == nil || c.lostError() != nil || !c.valid() || ctx.Err() != nil {
		return err
	}
	begun := t.run(ctx, c, "BEGIN") // an open one refuses it, and is ended now
	if err := t.run(ctx, c, rollbackSQL); err != nil {
		return errors.Join(begun, err)
	}
	return nil
}

func (t *Lifecycle) run(ctx context.Context, c *Conn, statements ...string) error {
	if len(statements) == 0 {
		return nil
	}
	return c.runInternal(ctx, func(conn *sql.Conn) error {
		for _, s := range statements {
			if _, err := conn.ExecContext(ctx, s); err != nil {
				return fmt.Errorf("sqlconn: %s: %w", s, err)
			}
		}
		return nil
	})
}

// runHealthQuery runs the health query to its end.
func (t *Lifecycle) runHealthQuery(ctx context.Context, conn *sql.Conn) error {
	rows, err := conn.QueryContext(ctx, t.cfg.Kind.HealthSQL)
	if err != nil {
		return fmt.Errorf("sqlconn: health query: %w", err)
	}
	for rows.Next() {
		continue
	}
	return errors.Join(rows.Err(), rows.Close())
}
