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

// A physical is one connection to the cluster. Its borrower alone may use it,
// but for sever.
type physical struct {
	sql *stdlib.Conn
	net atomic.Pointer[net.Conn] // below TLS. Nil until it is dialled
	// statements are prepared for database/sql. The user's.
	statements map[string]struct{}
	// user is whose pgx is.
	//
	// INVARIANT: only who has moved it from nobody may use pgx, and nobody moves
	// it from closer.
	user atomic.Int32

	// grace is how long a statement has to end after its context.
	grace time.Duration
	// abrupt says that the end of its context cuts the connection at once.
	abrupt atomic.Bool
	// cancelled says that the server was asked to cancel a statement, and that
	// nothing was answered since.
	cancelled atomic.Bool
}

// The users of a physical connection. The reservoir, for its pings and resets,
// is nobody: it lends nothing meanwhile.
const (
	nobody int32 = iota
	borrower
	closer
)

func (p *physical) pgx() *pgx.Conn { return p.sql.Conn() }

var errGone = errors.New("dsql: the server has closed the connection")

// fit says why a connection that comes back must not be lent again.
func (p *physical) fit() error {
	if err := p.resting(); err != nil || !p.cancelled.Load() {
		return err
	}
	return errors.New("dsql: a request to cancel a statement is under way")
}

// dialled takes the socket.
func (p *physical) dialled(conn net.Conn) { p.net.Store(&conn) }

// resting says why a connection cannot take a statement of a new borrower.
func (p *physical) resting() error {
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

// alive looks at an idle connection without waiting. Whatever there is to read
// is the end: a closed socket, TLS's or the server's farewell.
func (p *physical) alive() bool { return !p.pgx().IsClosed() && quiet(*p.net.Load()) }

// check proves that an idle connection works. The end of ctx is the proof that it
// does not.
func check(ctx context.Context, p *physical) error {
	p.abrupt.Store(true)
	defer p.abrupt.Store(false)
	return p.pgx().Ping(ctx)
}

// close returns when the server has closed its side, or did not want to, and the
// socket is closed, at the latest after limit. pgx may have begun to close it
// by itself, which can take longer.
func (p *physical) close(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	p.abrupt.Store(true)
	conn := p.pgx().PgConn()
	if !conn.IsClosed() && !conn.IsBusy() {
		p.takeLeave(limit / 5)
	}
	err := p.pgx().Close(ctx)
	select {
	case <-conn.CleanupDone():
	case <-ctx.Done():
		p.sever() // after which pgx has nothing to wait for. Of one that was hijacked it does not tell
	}
	return err
}

// takeLeave ends the session and waits until the server has ended it too: were
// the lease given back before, the next connection could arrive while the
// server still counts this one. What goes wrong ends the wait.
func (p *physical) takeLeave(limit time.Duration) {
	socket := *p.net.Load()
	if socket.SetDeadline(time.Now().Add(limit)) != nil {
		return
	}
	frontend := p.pgx().PgConn().Frontend()
	frontend.Send(&pgproto3.Terminate{})
	if frontend.Flush() == nil {
		_, _ = io.Copy(io.Discard, socket)
	}
}

// sever cuts the connection under whoever uses it. It may be called by anybody.
func (p *physical) sever() {
	if socket := p.net.Load(); socket != nil {
		_ = (*socket).Close() // an error: it was cut already
	}
}
