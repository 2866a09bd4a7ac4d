package dsql

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

var errNoCancel = errors.New("dsql: a cancelled query opens no second connection")

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
	p := &physical{statements: map[string]struct{}{}}
	var dialled atomic.Bool
	login := d.login.Copy()
	login.Password = token
	login.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
		if dialled.Swap(true) {
			return nil, errNoCancel // what pgx would dial later is a request to cancel
		}
		conn, err := d.cfg.Dial(ctx, network, address(d.cfg))
		p.net = conn
		return conn, err
	}
	conn, err := stdlib.GetConnector(*login).Connect(ctx)
	if err != nil {
		verdict, check := classify(err)
		return nil, d.fail(err, verdict, check)
	}
	p.sql = conn.(*stdlib.Conn) // what that connector makes
	return p, nil
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
