package dsql

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/stdlib"
)

// A physical is one connection to the cluster. Its borrower alone may use it, but any
// goroutine may call abort.
type physical struct {
	sql    *stdlib.Conn
	socket atomic.Pointer[net.Conn] // below TLS. Nil until it is dialled
	// prepared holds the statements prepared for database/sql. Only the owner uses it.
	prepared map[string]struct{}
	// owner says who may use pgx.
	//
	// INVARIANT: only the goroutine that moved it from ownedByNone may use pgx; it
	// never leaves ownedByCloser.
	owner atomic.Int32

	// cancelGrace is how long a statement has to end after its context.
	cancelGrace time.Duration
	// cutOnCancel says that the end of its context cuts the connection at once.
	cutOnCancel atomic.Bool
	// cancelRequested says that the server was asked to cancel a statement, and that
	// nothing was answered since.
	cancelRequested atomic.Bool
}

// The users of a physical connection. While the reservoir pings or resets it, the owner
// is ownedByNone: the connection is not lent meanwhile.
const (
	ownedByNone int32 = iota
	ownedByBorrower
	ownedByCloser
)

func (p *physical) pgx() *pgx.Conn { return p.sql.Conn() }

var errGone = errors.New("dsql: the server has closed the connection")

// checkReturned says why a connection that comes back must not be lent again.
func (p *physical) checkReturned() error {
	if err := p.checkIdle(); err != nil || !p.cancelRequested.Load() {
		return err
	}
	return errors.New("dsql: a request to cancel a statement is under way")
}

// setSocket takes the socket.
func (p *physical) setSocket(conn net.Conn) { p.socket.Store(&conn) }

// checkIdle says why a connection cannot take a statement of a new borrower.
func (p *physical) checkIdle() error {
	conn := p.pgx()
	switch {
	case conn.IsClosed():
		return errGone
	case conn.PgConn().IsBusy():
		return errors.New("dsql: a result was not read to its end")
	case conn.PgConn().TxStatus() != 'I':
		return fmt.Errorf("dsql: a transaction was left open (status %c)", conn.PgConn().TxStatus())
	}
	return nil
}

// alive looks at an idle connection without waiting. Anything readable means that the
// connection has ended: EOF, a TLS alert or the server's last message.
func (p *physical) alive() bool { return !p.pgx().IsClosed() && nothingToRead(*p.socket.Load()) }

// check proves that an idle connection works. When ctx ends first, the check has failed
// and the connection is cut.
func check(ctx context.Context, p *physical) error {
	p.cutOnCancel.Store(true)
	defer p.cutOnCancel.Store(false)
	return p.pgx().Ping(ctx)
}

// close returns when the server has closed its side, or did not want to, and the
// socket is closed, at the latest after limit. pgx may have begun to close it
// by itself, which can take longer.
func (p *physical) close(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	p.cutOnCancel.Store(true)
	conn := p.pgx().PgConn()
	if !conn.IsClosed() && !conn.IsBusy() {
		p.terminate(limit / 5)
	}
	err := p.pgx().Close(ctx)
	select {
	case <-conn.CleanupDone():
	case <-ctx.Done():
		p.abort() // after which pgx has nothing to wait for. Of one that was hijacked it does not tell
	}
	return err
}

// terminate ends the session and waits until the server has ended it too: were
// the lease given back before, the next connection could arrive while the
// server still counts this one. What goes wrong ends the wait.
func (p *physical) terminate(limit time.Duration) {
	socket := *p.socket.Load()
	if socket.SetDeadline(time.Now().Add(limit)) != nil {
		return
	}
	frontend := p.pgx().PgConn().Frontend()
	frontend.Send(&pgproto3.Terminate{})
	if frontend.Flush() == nil {
		_, _ = io.Copy(io.Discard, socket)
	}
}

// abort cuts the connection under whoever uses it. It may be called from any goroutine.
func (p *physical) abort() {
	if socket := p.socket.Load(); socket != nil {
		_ = (*socket).Close() // an error: it was cut already
	}
}
