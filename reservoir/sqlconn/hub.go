package sqlconn

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
)

// A Wrapper wraps physical connections in *sql.Conn. It keeps none, opens none and
// has one goroutine, however many targets share it. It is safe for concurrent
// use; close it after the last reservoir that uses it.
type Wrapper struct{ db *sql.DB }

// NewWrapper makes a Wrapper.
func NewWrapper() *Wrapper {
	db := sql.OpenDB(wrapConnector{})
	db.SetMaxIdleConns(-1) // a *sql.Conn that ends lets go of what it wraps
	return &Wrapper{db: db}
}

// Close ends the Wrapper's goroutine. A *sql.Conn on loan stays usable.
func (h *Wrapper) Close() error { return h.db.Close() }

// wrap makes a *sql.Conn over a borrowedConn. It does no I/O and waits for nobody, so that a ctx
// which ends meanwhile does not end it: the connection is lent by then.
func (h *Wrapper) wrap(ctx context.Context, l driver.Conn) (*sql.Conn, error) {
	return h.db.Conn(context.WithValue(context.WithoutCancel(ctx), wrappedKey{}, l))
}

type wrappedKey struct{}

// wrapConnector is the connector of a sql.DB that connects to what its caller brings
// along.
type wrapConnector struct{}

func (wrapConnector) Connect(ctx context.Context) (driver.Conn, error) {
	if l, ok := ctx.Value(wrappedKey{}).(driver.Conn); ok {
		return l, nil
	}
	return nil, errNothingToWrap
}

func (wrapConnector) Driver() driver.Driver { return noDriver{} }

type noDriver struct{}

func (noDriver) Open(string) (driver.Conn, error) { return nil, errNothingToWrap }

var errNothingToWrap = errors.New("sqlconn: a Wrapper opens no connections of its own")
