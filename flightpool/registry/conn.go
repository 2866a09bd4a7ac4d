package registry

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/reservoir/sqlconn"
)

// Conn is a borrowed connection. Its borrower alone uses it, and must give it back
// with Release or Fail, exactly once.
type Conn struct {
	user     *userPool
	released atomic.Bool

	session *flightpool.SessionHandle
	sql     *sql.Conn
	loan    reservoir.Loan[*sqlconn.Conn] // with sql
	traced  func(discard error)           // likewise: tells of the end of the loan
}

// acquire borrows from a poolVersion. The error of Lend costs the connection, which has
// shown that it does not work.
func (u *userPool) acquire(ctx context.Context, g *currentVersion) (*Conn, error) {
	if flight, ok := g.poolVersion.(flightVersion); ok {
		session, err := flight.pool.AcquireSession(ctx)
		if err != nil {
			return nil, err
		}
		return &Conn{user: u, session: session}, nil
	}
	return u.acquireSQL(ctx, g.poolVersion.(*sqlVersion)) //nolint:forcetypeassert // there are two
}

// acquireSQL is acquire on a server of database/sql.
func (u *userPool) acquireSQL(ctx context.Context, g *sqlVersion) (*Conn, error) {
	acquired, released := g.tracing.acquire(ctx)
	loan, err := g.Acquire(ctx)
	if err != nil {
		acquired(0, err)
		return nil, err
	}
	acquired(loan.ConnectionID(), nil)
	conn, err := loan.Value().LendTraced(ctx, g.tracing.calls(loan.ConnectionID()))
	if err != nil {
		released(err)
		return nil, errjoin.Join(err, loan.Discard(err))
	}
	return &Conn{user: u, sql: conn, loan: loan, traced: released}, nil
}

// Server is the name of the server.
func (c *Conn) Server() string { return c.user.server.name }

// User is the local user.
func (c *Conn) User() string { return c.user.name }

// Session is the session on a Flight SQL server; nil on any other.
func (c *Conn) Session() *flightpool.SessionHandle { return c.session }

// SQL is the connection to a database/sql server; nil on any other. Release
// closes it.
func (c *Conn) SQL() *sql.Conn { return c.sql }

// Valid reports whether the connection is still borrowed.
func (c *Conn) Valid() bool { return !c.released.Load() }

// releaseTimeout bounds how long Release waits for rows and transactions that the
// borrower left open.
const releaseTimeout = 5 * time.Second

// Release gives the connection back, after what the session left was taken back.
// A connection that is broken or cannot be cleaned is closed, which is not the
// borrower's error. Rows and transactions of SQL that are still open hold it up, for
// 5s at most; then the connection is closed, and a goroutine waits on for their end.
// A second call answers ErrReleased and does nothing.
func (c *Conn) Release() error { return c.endLoan(nil) }

// Fail gives the connection back to be closed. reason says what is wrong with it.
func (c *Conn) Fail(reason error) error {
	if reason == nil {
		reason = errors.New("the borrower said so")
	}
	return c.endLoan(&markedError{reason})
}

// markedError is a borrower's word that a connection has failed. It says nothing of the server.
type markedError struct{ reason error }

func (e *markedError) Error() string { return "registry: marked as failed: " + e.reason.Error() }
func (e *markedError) Unwrap() error { return e.reason }

// SaidByBorrower is that of the reasons that sessions are discarded for, too.
func (*markedError) SaidByBorrower() {}

// endLoan ends the loan, once; a reason has the connection closed. What the return of a
// connection comes to is no error of the borrower's, but that the loan was over before
// is.
func (c *Conn) endLoan(reason error) error {
	if c.released.Swap(true) {
		return ErrReleased
	}
	if c.session != nil {
		if reason != nil {
			_ = c.session.Discard(reason) // its error is the reason
			return nil
		}
		_ = c.session.Close() // its error is why the connection was discarded
		return nil
	}
	lost := error(nil)
	if reason == nil {
		reason = sqlconn.ReturnWithin(releaseTimeout, c.sql)
	} else {
		lost = c.loan.Value().Lost() // which is more than a word
		sqlconn.Abandon(c.sql)
	}
	defer c.traced(reason)
	if reason != nil {
		return loanError(c.loan.Discard(cmp.Or(lost, reason)))
	}
	return loanError(c.loan.Release())
}

// loanError: only a forced Close can have ended the loan before.
func loanError(err error) error {
	if errors.Is(err, reservoir.ErrReleased) {
		return fmt.Errorf("%w: taken back when its pool closed", ErrReleased)
	}
	return err
}
