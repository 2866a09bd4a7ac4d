package sqlconn

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
)

// A Hub wraps physical connections in *sql.Conn. It keeps none, opens none and
// has one goroutine, however many targets share it. It is safe for concurrent
// use; close it after the last reservoir that uses it.
type Hub struct{ db *sql.DB }

// NewHub makes a Hub.
func NewHub() *Hub {
	db := sql.OpenDB(router{})
	db.SetMaxIdleConns(-1) // a *sql.Conn that ends lets go of what it wraps
	return &Hub{db: db}
}

// Close ends the Hub's goroutine. What is lent stays usable.
func (h *Hub) Close() error { return h.db.Close() }

// wrap makes a *sql.Conn over what is lent. It does no I/O.
func (h *Hub) wrap(ctx context.Context, l driver.Conn) (*sql.Conn, error) {
	return h.db.Conn(context.WithValue(ctx, lentKey{}, l))
}

type lentKey struct{}

// router is the connector of a sql.DB that connects to what its caller brings
// along.
type router struct{}

func (router) Connect(ctx context.Context) (driver.Conn, error) {
	if l, ok := ctx.Value(lentKey{}).(driver.Conn); ok {
		return l, nil
	}
	return nil, errNotLent
}

func (router) Driver() driver.Driver { return noDriver{} }

type noDriver struct{}

func (noDriver) Open(string) (driver.Conn, error) { return nil, errNotLent }

var errNotLent = errors.New("sqlconn: a hub opens no connections of its own")
