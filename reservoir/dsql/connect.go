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

var errSecondDial = errors.New("dsql: a connection that was lost opens no second one")

// A dialer opens connections. It knows no budget: that is the Cluster's.
type dialer struct {
	cfg    Config
	login  *pgx.ConnConfig
	signer tokenSigner

	phases openPhases
}

// open opens one connection, in one attempt.
func (d *dialer) open(ctx context.Context) (*physical, error) {
	token, err := d.sign(ctx)
	if err != nil {
		return nil, d.openError(err, permanent, checkCredentials)
	}
	p := &physical{prepared: map[string]struct{}{}, cancelGrace: d.cfg.CancelGrace}
	opened := false
	defer func() {
		if !opened { // also when a function of the user's panics, or does not return
			p.abort()
		}
	}()
	login := d.login.Copy()
	login.Password = token
	login.DialFunc = d.dialFuncFor(p)
	if login.BuildContextWatcherHandler == nil {
		login.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler { return &cancelHandler{p: p, conn: conn} }
	}
	// Config.Pgx may have set functions that ignore their context.
	began := time.Now()
	answered := d.phases.beginLogin(p)
	defer answered()
	conn, err := callWithin(ctx, func() (driver.Conn, error) { return stdlib.GetConnector(*login).Connect(ctx) },
		func(late driver.Conn) { _ = late.Close() }) // nobody wants it
	answered()
	if err != nil {
		failure, check := classify(err)
		failed := d.openError(err, failure, check)
		failed.unasked = errors.Is(ctx.Err(), context.DeadlineExceeded) && time.Since(began) < d.cfg.OpenTimeout/2
		return nil, failed
	}
	p.sql = conn.(*stdlib.Conn) // what that connector makes
	if err := d.runAfterConnect(ctx, p); err != nil {
		return nil, err
	}
	opened = true
	return p, nil
}

// dialFuncFor dials for one connection: once for itself, and later for requests to
// cancel a statement. pgx makes such a request also for a connection that it gives up,
// when a cancelHandler has made it before or had no use for it.
func (d *dialer) dialFuncFor(p *physical) pgconn.DialFunc {
	var dialled atomic.Bool
	ownHandler := d.login.BuildContextWatcherHandler != nil // the user's own way to end statements
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if dialled.Swap(true) {
			if !ownHandler && ctx.Value(cancelRequestKey{}) == nil {
				return nil, errSecondDial
			}
			return d.dial(ctx, network, address)
		}
		conn, err := d.dial(ctx, network, "")
		if err == nil {
			p.setSocket(conn)
		}
		return conn, err
	}
}

// dial dials the cluster. A request to cancel a statement goes to the very
// address that its connection has, unless Config.Dial knows better where that is.
func (d *dialer) dial(ctx context.Context, network, exact string) (net.Conn, error) {
	if d.cfg.Dial != nil {
		return callWithin(ctx, func() (net.Conn, error) { return d.cfg.Dial(ctx, network, address(d.cfg)) },
			func(late net.Conn) { _ = late.Close() }) // nobody wants it
	}
	if exact == "" {
		exact = address(d.cfg)
	}
	return tcpDialer.DialContext(ctx, network, exact)
}

// tcpDialer finds a peer that fell silent within half a minute, without a statement.
var tcpDialer = &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}}

// runAfterConnect lets the user prepare a new connection, and closes it when that fails
// or panics; when it does not end in time, open cuts the connection.
func (d *dialer) runAfterConnect(ctx context.Context, p *physical) error {
	if d.cfg.AfterConnect == nil {
		return nil
	}
	end := func() { _ = p.close(context.WithoutCancel(ctx), d.cfg.CloseTimeout) } // why it failed matters more
	gone, err := callWithin(ctx, func() (gone bool, err error) {
		prepared := false
		defer func() {
			if !prepared {
				end()
			}
		}()
		err = cmp.Or(d.cfg.AfterConnect(ctx, p.pgx()), p.checkIdle())
		prepared = err == nil
		return p.pgx().IsClosed() && ctx.Err() == nil, err
	}, func(bool) { end() })
	if err == nil {
		return nil
	}
	failed := d.openError(withContextError(ctx, err), transient, checkAfterConnect) // that the open's time was over, the answer to a cancelled statement does not say
	failed.loggedIn = !gone
	return failed
}

func (d *dialer) sign(ctx context.Context) (token string, err error) {
	d.phases.signing.Add(1)
	defer d.phases.signing.Add(-1)
	return d.signer.sign(ctx)
}

// openError says what was being opened. An open that was called off says nothing of
// the next.
func (d *dialer) openError(cause error, v failureKind, check string) *OpenError {
	if errors.Is(cause, context.Canceled) {
		v, check = transient, ""
	}
	return &OpenError{Host: d.cfg.Host, User: d.cfg.User, Region: d.cfg.Region, Check: check, At: time.Now(), kind: v, Err: cause}
}

// OpenError is why a connection could not be opened. Its chain reaches pgx's
// error: *pgconn.ConnectError and, when the cluster answered, *pgconn.PgError.
type OpenError struct {
	Host, User, Region string
	// Check names the settings to look at, if the error tells.
	Check string
	// At is when it failed: whoever waits may be told of an earlier one.
	At  time.Time
	Err error

	kind     failureKind
	loggedIn bool // and the connection has not ended
	unasked  bool // others were before it for most of its time
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

// Denied reports whether the cluster has refused User, its token or Database, which says nothing of what it has for others.
func (e *OpenError) Denied() bool {
	return e.kind == permanent && (e.Check == checkUser || e.Check == checkDatabase)
}

// NotAsked reports whether the cluster was not asked: there were no credentials, or others were before it until its time was over, or
// nearly.
func (e *OpenError) NotAsked() bool {
	return e.unasked || e.kind == permanent && e.Check == checkCredentials
}

// LoggedIn reports whether the cluster had taken the login, and the connection did not end: AfterConnect failed by itself, or took too
// long.
func (e *OpenError) LoggedIn() bool { return e.loggedIn }
