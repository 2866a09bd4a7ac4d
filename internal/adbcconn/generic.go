package adbcconn

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-adbc/go/adbc"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/cancel"
	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/errjoin"
)

// GenericConfig tells what OpenGeneric needs to know beside the database. The
// zero value of a field is its default.
type GenericConfig struct {
	Target       string        // names the server in errors ("adbc")
	ProbeSQL     string        // a harmless query, which is the ping ("SELECT 1")
	CloseTimeout time.Duration // bounds Close, and the release of a result (5 s)
	ToldApart    *atomic.Bool  // that its server tells prepared statements apart, for all connections of the database (each by itself)
}

// GenericConn is backend.Conn over a connection of any ADBC driver. It knows
// nothing of the driver's transport: a connection that the driver makes anew
// by itself cannot be told from the old one.
//
// Drivers are written in C or Go, block as they like, and may crash when two
// goroutines are in one connection. So each call of the driver runs on a
// goroutine of its own with driverLock held, and a caller waits for it no
// longer than its context allows (runInDriver). A driver that does not return
// in time keeps driverLock and its connection, which is lost then.
type GenericConn struct {
	cfg         GenericConfig
	cn          adbc.Connection
	driverName  string          // as the driver has it; empty: it does not say
	isFlightSQL bool            // it is a Flight SQL driver, with that one's defects
	maxMessage  int             // that this one sends
	life        context.Context //nolint:containedctx // the connection's: its end cuts the calls under way
	endLife     context.CancelFunc
	opened      atomic.Bool // Open has succeeded
	lost        atomic.Pointer[error]

	// driverLock is held while the driver is inside a call.
	//
	// INVARIANT: nobody enters the driver's connection, its statements and
	// readers without it, Close included. Drivers crash otherwise.
	driverLock chan struct{}

	// readers are those that the driver has open, which must be released before
	// the connection is closed. They are accessed with driverLock held.
	readers map[*genericRows]struct{}

	// prepared are the statements that their owners have not closed. Where they could not, the
	// connection having been lost, Close does. They are accessed with driverLock held.
	prepared map[*genericPrepared]struct{}
	mark     sessionMark // of the session that has them
	proofs   atomic.Bool // the server has closed a proof

	// currentProof and firstProof are the handles that watch over the open
	// transaction of a Flight SQL driver; see beginProofs. They are accessed with
	// driverLock held.
	//
	// INVARIANT: while firstProof is not nil, a statement of the transaction runs
	// by currentProof, or by a handle that was prepared before it.
	currentProof, firstProof adbc.Statement

	// autocommitOff says that the driver is in a transaction, possibly one that it has
	// begun by itself at the end of the last. It is accessed with driverLock held.
	autocommitOff bool

	// ownTx ends the transaction that the driver has begun by itself, or is empty; see generic_owntx.go. It is
	// accessed with driverLock held.
	ownTx     string
	ownTxRows int64 // of its parameters

	// zoneSet says that the driver has set the time zone in its caller's transaction for what is under way, and zoneLeft that
	// it has not put it back. They are accessed with driverLock held.
	zoneSet, zoneLeft bool

	// cutMidway says that a change of the transaction which is several to the server was cut, and
	// may run on there. It is accessed with driverLock held.
	cutMidway bool

	tx         atomic.Pointer[backend.TxID] // the open transaction, or nil
	lastTx     atomic.Int64
	failedInTx atomic.Bool // something has, since it began

	closeOnce sync.Once
	closeErr  error
}

var (
	_ backend.Conn             = (*GenericConn)(nil)
	_ backend.StatementOrderer = (*GenericConn)(nil)
	_ backend.TxWatcher        = (*GenericConn)(nil)
)

// OpenGeneric opens a connection of db, asks the driver for its name, and proves the
// connection by a round trip: drivers open connections to servers that are not there.
// Unless the driver has no GetInfo at all, an error of that is one of the open. The caller
// must close the connection. db stays the caller's.
//
// A driver that does not heed ctx is left to itself when ctx ends; what it
// opens later is closed.
//
// Errors of the open itself and of the probe have StageDial where the server
// cannot be reached.
func OpenGeneric(ctx context.Context, db adbc.Database, cfg GenericConfig) (backend.Conn, error) {
	cfg.Target, cfg.ProbeSQL = cmp.Or(cfg.Target, "adbc"), cmp.Or(cfg.ProbeSQL, "SELECT 1")
	cfg.CloseTimeout, cfg.ToldApart = cmp.Or(max(0, cfg.CloseTimeout), 5*time.Second), cmp.Or(cfg.ToldApart, new(atomic.Bool))
	c := &GenericConn{cfg: cfg, driverLock: make(chan struct{}, 1), readers: map[*genericRows]struct{}{}, prepared: map[*genericPrepared]struct{}{}}
	c.life, c.endLife = context.WithCancel(context.WithoutCancel(ctx))
	t, err := c.begin(ctx, "Open")
	if err != nil {
		c.endLife()
		return nil, err
	}
	defer t.end()
	c.cn, err = runInDriver(t, backend.StageDial, db.Open, func(late adbc.Connection) { _ = late.Close() })
	if err == nil { // the name comes first: it decides how the probe is read
		err = doInDriver(t, backend.StageProbe, func(ctx context.Context) error { return c.learnDriver(ctx, db) })
	}
	if err == nil {
		err = t.runProbe()
	}
	if err != nil {
		var e *backend.Error
		if errors.As(err, &e) && e.Fault == backend.FaultTransport {
			e.Stage = backend.StageDial // which drivers put off until they must
		}
		return nil, errjoin.Join(err, c.closeUnopened())
	}
	c.opened.Store(true)
	return c, nil
}

// closeUnopened closes a connection that failed to open. There may be none: the
// driver has failed to make it, or has not returned.
func (c *GenericConn) closeUnopened() error {
	if c.cn == nil {
		c.endLife()
		return nil
	}
	_ = c.Close() // the reason for it counts
	return nil
}

// Lost is part of backend.Conn. The reason is the owner's Close, a driver that
// did not return, a transport that has ended, a session that was replaced, or a
// transaction whose end has failed.
func (c *GenericConn) Lost() error {
	if p := c.lost.Load(); p != nil {
		return *p
	}
	return nil
}

// markLost ends the connection for all but Close. Only the first reason counts.
// Calls under way are cut by the end of life.
func (c *GenericConn) markLost(reason error) {
	if c.lost.CompareAndSwap(nil, &reason) {
		c.endLife()
	}
}

var errClosed = errors.New("closed by its owner")

// Close is part of backend.Conn. It returns within Config.CloseTimeout; a
// driver that takes longer closes behind it, and one that never returns from a
// call is never closed. It waits for the call that is in the driver, which was
// cut, then releases and closes what is open, ends the transaction and closes. Later calls
// return what the first has returned.
func (c *GenericConn) Close() error {
	c.closeOnce.Do(func() {
		c.markLost(errClosed)
		done := make(chan error, 1)
		c.enterInBackground(func() {
			for r := range c.readers {
				c.containDriver(r.release)
			}
			c.closePrepared()
			c.containDriver(c.rollBackBeforeClose)
			done <- callback.Isolate(theDriver, c.cn.Close)
		})
		timer := time.NewTimer(c.cfg.CloseTimeout)
		defer timer.Stop()
		select {
		case err := <-done:
			if err != nil {
				c.closeErr = c.newError("Close", backend.StageClose, backend.FaultUnknown, WithCause(err, nil))
			}
		case <-timer.C:
			c.closeErr = c.newError("Close", backend.StageClose, backend.FaultUnknown, errors.New("the driver does not return"))
		}
	})
	return c.closeErr
}

// closePrepared closes the statements that are open, which drivers want before the end of their
// connection. The Flight SQL driver would make a round trip for each, on a transport that it
// might dial for it; its server ends them with the session. The caller holds driverLock.
func (c *GenericConn) closePrepared() {
	if c.isFlightSQL {
		return
	}
	for p := range c.prepared {
		c.containDriver(func() { _ = p.closeStatement() })
	}
}

// newError makes an error of this connection. It says nothing of Unsent.
func (c *GenericConn) newError(op string, stage backend.Stage, fault backend.Fault, err error) *backend.Error {
	return &backend.Error{Op: op, Stage: stage, Fault: fault, Target: c.cfg.Target, Err: err}
}

// CancelSteps is part of backend.Conn. The end of a call's context is all
// there is; whether it has helped, a probe finds out.
func (c *GenericConn) CancelSteps(*backend.Operation) []cancel.Step { return nil }

// StatementOrder is part of backend.StatementOrderer. The Flight SQL driver returns when
// the RPC has ended on this side, whatever its server does: an answer of the session then
// proves nothing, and nobody knows what would. Other drivers are believed.
func (c *GenericConn) StatementOrder() *backend.StatementOrder {
	if c.isFlightSQL {
		return &backend.StatementOrder{}
	}
	return nil
}

// Ping is part of backend.Conn: it runs the probe.
func (c *GenericConn) Ping(ctx context.Context) error {
	t, err := c.begin(ctx, "Ping")
	if err != nil {
		return err
	}
	defer t.end()
	return t.runProbe()
}

// runProbe runs the probe to its end. An answer will do, be it a refusal. All
// rows are read, so that the server has ended the query.
func (t *driverCall) runProbe() error {
	err := doInDriver(t, backend.StageProbe, func(ctx context.Context) error {
		rows, err := t.conn.execute(ctx, t.conn.toRun(t.conn.cfg.ProbeSQL, backend.Call{}), backend.Call{})
		if err != nil {
			return err
		}
		defer rows.release()
		for {
			if more, err := hasNext(ctx, rows.reader); !more {
				return err
			}
		}
	})
	if backend.FaultIn(err) == backend.FaultStatement {
		return nil
	}
	return err
}

// unsupportedError is the error of a call that ADBC does not have.
func (c *GenericConn) unsupportedError(ctx context.Context, op, why string) error {
	t, err := c.begin(ctx, op)
	if err != nil {
		return err
	}
	t.end()
	e := c.newError(op, backend.StageArgument, backend.FaultUnsupported, errors.New(why))
	e.Unsent = true
	return e
}

// SetOptions is part of backend.Conn.
func (c *GenericConn) SetOptions(ctx context.Context, _ map[string]any) error {
	return c.unsupportedError(ctx, "SetOptions", "ADBC has no session options of its own")
}

// Options is part of backend.Conn.
func (c *GenericConn) Options(ctx context.Context) (map[string]any, error) {
	return nil, c.unsupportedError(ctx, "Options", "ADBC has no session options of its own")
}
