package sqlconn

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/ctxerr"
)

// A Conn is one physical connection of a driver. One borrower uses it at a
// time, through Lend; the counters may be read at any time.
type Conn struct {
	lifecycle *Lifecycle
	raw       driver.Conn
	id        uint64

	// sessionID and server are what IdentifySQL told: who and where this is.
	sessionID, serverID string
	openedAt            time.Time // before the session began
	latestStatement     atomic.Pointer[statement]
	latestLoan          atomic.Pointer[borrowedConn]
	killing             atomic.Bool
	killDone            chan struct{} // closed at the end of an attempt to stop the latest

	queries       atomic.Uint64
	failures      atomic.Uint64
	queryTime     atomic.Int64 // nanoseconds
	lost          atomic.Pointer[error]
	cannotReset   atomic.Bool                   // a statement ran that Reset cannot take back
	needsReset    atomic.Bool                   // one ran that Reset has to take something back of
	refused       atomic.Bool                   // the driver took no call beside open rows, and has answered none since
	abandonedCall atomic.Pointer[chan struct{}] // closed when a call returns that was given up
	calls         driverCalls
}

// errLoanUsed says nothing of the server, so it does not wrap that a time was over.
var errLoanUsed = errors.New("sqlconn: rows or a transaction of the connection are still open")

// awaitLoanEnd waits until nothing of the latest loan can reach the connection any more.
// A *sql.Conn that database/sql has closed itself, as it does where it has rolled back a
// transaction whose context ended, says that it is done while its rows are still open.
func (c *Conn) awaitLoanEnd(ctx context.Context) error {
	loan := c.latestLoan.Load()
	if loan == nil {
		return nil
	}
	select {
	case <-loan.ended:
		return nil
	default:
	}
	select {
	case <-loan.ended:
		return nil
	case <-ctx.Done():
		return errLoanUsed
	}
}

// ID tells the connections of one process apart.
func (c *Conn) ID() uint64 { return c.id }

// ExpiresAt is until when the connection can be used, where its driver's connection has a
// method of that name; zero: it has none.
func (c *Conn) ExpiresAt() time.Time {
	if e, ok := c.raw.(interface{ ExpiresAt() time.Time }); ok {
		return e.ExpiresAt()
	}
	return time.Time{}
}

// Queries counts the statements that borrowers ran, Failures those of them that
// failed, and Busy is the time until the driver answered them.
func (c *Conn) Queries() (queries, failures uint64, busy time.Duration) {
	return c.queries.Load(), c.failures.Load(), time.Duration(c.queryTime.Load())
}

// errClosing is why a call is not made. It says nothing of the connection.
var errClosing = fmt.Errorf("sqlconn: the connection is about to be closed: %w", net.ErrClosed)

// refusal is the error of a call that is not made.
func (c *Conn) refusal() error {
	return fmt.Errorf("%w: %w", driver.ErrBadConn, cmp.Or(c.lostError(), errClosing))
}

// lostError is why the connection was lost, without a call of the driver.
func (c *Conn) lostError() error {
	if err := c.lost.Load(); err != nil {
		return *err
	}
	return nil
}

// Lost is why the connection is known to be broken, or nil. The driver is not asked while it
// is at work.
func (c *Conn) Lost() error {
	if err := c.lostError(); err != nil {
		return err
	}
	if c.calls.busy() || c.valid() {
		return nil
	}
	return c.deathError()
}

// deathError is why a connection is lost that died while rows were read, or in between: whether
// the server is to blame cannot be told once the context has ended, so it is not blamed.
func (c *Conn) deathError() error {
	if latest := c.latestStatement.Load(); c.refused.Load() || latest != nil && latest.ctxErr() != nil {
		return errClosedByDriver
	}
	return driver.ErrBadConn
}

// Lend makes the *sql.Conn of one loan. Its Close ends the use and leaves the
// physical connection open. As database/sql has it, that Close waits for rows
// and transactions of the *sql.Conn that are still open.
func (c *Conn) Lend(ctx context.Context) (*sql.Conn, error) { return c.LendTraced(ctx, nil) }

// LendTraced is Lend with a Trace that is told of the borrower's calls; nil: nobody is.
func (c *Conn) LendTraced(ctx context.Context, trace Trace) (*sql.Conn, error) {
	loan := &borrowedConn{conn: c, forBorrower: true, ended: make(chan struct{}), trace: trace}
	conn, err := c.lifecycle.wrapper.wrap(ctx, withDriverInterfaces(loan))
	if err == nil {
		c.latestLoan.Store(loan)
	}
	return conn, err
}

// Return closes a *sql.Conn that Lend made. Rows and transactions of it that are
// still open hold that up; when ctx ends first, Return gives up with ctx's error,
// and the connection must be discarded. A goroutine then remains until those are
// closed, or their contexts end: database/sql has no other way to wait for them. It
// remains for ever where a driver, or an argument's driver.Valuer, has ended the
// goroutine of a query by runtime.Goexit: database/sql keeps a lock then.
func Return(ctx context.Context, conn *sql.Conn) error {
	closing := callback.Go(callback.NoValue(conn.Close))
	select {
	case <-closing.Done:
		return ignoreDone(closing.Failure(theDriver))
	case <-ctx.Done():
		return fmt.Errorf("sqlconn: rows or a transaction of the connection are still open: %w", ctxerr.Of(ctx))
	}
}

// ReturnWithin is Return with a time instead of a context, which costs less on the
// way of every loan.
func ReturnWithin(limit time.Duration, conn *sql.Conn) error {
	closing := callback.Go(callback.NoValue(conn.Close))
	runtime.Gosched() // mostly that is all it takes
	select {
	case <-closing.Done:
	default:
		if !callback.EndsWithin(closing.Done, limit) {
			return fmt.Errorf("sqlconn: rows or a transaction of the connection are still open after %v", limit)
		}
	}
	return ignoreDone(closing.Failure(theDriver))
}

// Abandon closes a *sql.Conn whose connection is to be discarded, without waiting for
// rows and transactions of it. A goroutine remains for those, as of Return.
func Abandon(conn *sql.Conn) { callInBackground(conn.Close) }

// runInternal runs f on the connection as a borrower would, uncounted.
func (c *Conn) runInternal(ctx context.Context, f func(*sql.Conn) error) error {
	conn, err := c.lifecycle.wrapper.wrap(ctx, withDriverInterfaces(&borrowedConn{conn: c}))
	if err != nil {
		return err
	}
	return errors.Join(f(conn), ignoreDone(conn.Close()))
}

// ignoreDone: database/sql has closed the wrapper itself when the driver said
// that the connection is bad.
func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrConnDone) {
		return nil
	}
	return err
}
