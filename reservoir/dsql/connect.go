package dsql

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/stdlib"
)

var errNoSecond = errors.New("dsql: a connection that was lost opens no second one")

// A dialer opens connections. It knows no budget: that is the Cluster's.
type dialer struct {
	cfg    Config
	login  *pgx.ConnConfig
	tokens tokens
}

// open opens one connection, in one attempt.
func (d *dialer) open(ctx context.Context) (*physical, error) {
	token, err := d.tokens.fresh(ctx)
	if err != nil {
		return nil, d.fail(err, hopeless, "Credentials")
	}
	p := &physical{statements: map[string]struct{}{}, grace: d.cfg.CancelGrace}
	opened := false
	defer func() {
		if !opened { // also when a function of the user's panics, or does not return
			p.sever()
		}
	}()
	login := d.login.Copy()
	login.Password = token
	login.DialFunc = d.dialFor(p)
	if login.BuildContextWatcherHandler == nil {
		login.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler { return &canceller{p: p, conn: conn} }
	}
	// Config.Pgx may have set functions that do not mind their context.
	conn, err := heeding(ctx, func() (driver.Conn, error) { return stdlib.GetConnector(*login).Connect(ctx) },
		func(late driver.Conn) { _ = late.Close() }) // nobody wants it
	if err != nil {
		verdict, check := classify(err)
		return nil, d.fail(err, verdict, check)
	}
	p.sql = conn.(*stdlib.Conn) // what that connector makes
	if err := d.prepare(ctx, p); err != nil {
		return nil, err
	}
	opened = true
	return p, nil
}

// dialFor dials for one connection: once for itself, and later for requests to
// cancel a statement. pgx makes such a request also for a connection that it gives
// up, when a canceller has made it before or had no use for it.
func (d *dialer) dialFor(p *physical) pgconn.DialFunc {
	var dialled atomic.Bool
	foreign := d.login.BuildContextWatcherHandler != nil // the user's own way to end statements
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if dialled.Swap(true) {
			if !foreign && ctx.Value(requestKey{}) == nil {
				return nil, errNoSecond
			}
			return d.dial(ctx, network, address)
		}
		conn, err := d.dial(ctx, network, "")
		if err == nil {
			p.dialled(conn)
		}
		return conn, err
	}
}

// dial dials the cluster. A request to cancel a statement goes to the very
// address that its connection has, unless Config.Dial knows better where that is.
func (d *dialer) dial(ctx context.Context, network, exact string) (net.Conn, error) {
	if d.cfg.Dial != nil {
		return heeding(ctx, func() (net.Conn, error) { return d.cfg.Dial(ctx, network, address(d.cfg)) },
			func(late net.Conn) { _ = late.Close() }) // nobody wants it
	}
	if exact == "" {
		exact = address(d.cfg)
	}
	return tcp.DialContext(ctx, network, exact)
}

// tcp finds a peer that fell silent within half a minute, without a statement.
var tcp = &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}}

// prepare lets the user prepare a new connection, and closes it when that fails
// or panics; when it does not end in time, open cuts the connection.
func (d *dialer) prepare(ctx context.Context, p *physical) error {
	if d.cfg.AfterConnect == nil {
		return nil
	}
	end := func() { _ = p.close(context.WithoutCancel(ctx), d.cfg.CloseTimeout) } // why it failed matters more
	_, err := heeding(ctx, func() (_ struct{}, err error) {
		prepared := false
		defer func() {
			if !prepared {
				end()
			}
		}()
		err = cmp.Or(d.cfg.AfterConnect(ctx, p.pgx()), p.resting())
		prepared = err == nil
		return struct{}{}, err
	}, func(struct{}) { end() })
	if err != nil {
		return d.fail(err, passing, "AfterConnect")
	}
	return nil
}

// fail says what was being opened. An open that was called off says nothing of
// the next.
func (d *dialer) fail(cause error, v verdict, check string) error {
	if errors.Is(cause, context.Canceled) {
		v, check = passing, ""
	}
	return &OpenError{Host: d.cfg.Host, User: d.cfg.User, Region: d.cfg.Region, Check: check, verdict: v, Err: cause}
}

// OpenError is why a connection could not be opened. Its chain reaches pgx's
// error: *pgconn.ConnectError and, when the cluster answered, *pgconn.PgError.
type OpenError struct {
	Host, User, Region string
	// Check names the settings to look at, if the error tells.
	Check string
	Err   error

	verdict verdict
}

func (e *OpenError) Error() string {
	s := fmt.Sprintf("dsql: open %s as %q (region %s): %v", e.Host, e.User, e.Region, e.Err)
	if e.Check != "" {
		s += "; check " + e.Check
	}
	return s
}

// Unwrap gives the cause.
func (e *OpenError) Unwrap() error { return e.Err }
