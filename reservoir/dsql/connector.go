package dsql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
)

// A Connector gives the connections of a view to database/sql. It is safe for
// concurrent use. sql.DB.Close closes it.
type Connector struct {
	view  *view
	close func() error
}

var _ driver.Connector = (*Connector)(nil)

// NewConnector makes a Cluster of its own and a connector of all of it, for
// sql.OpenDB. It does not wait for connections. Closing the connector, or the
// sql.DB, closes the cluster, within CloseTimeout. Where you set SetMaxOpenConns on the
// sql.DB, set SetMaxIdleConns(-1) too, as OpenDB does: database/sql would keep a connection
// that it has opened for somebody who has left, and not ask whether it is valid.
func NewConnector(ctx context.Context, cfg Config) (*Connector, error) {
	p, err := NewPool(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &Connector{view: p.view, close: func() error { return p.view.cluster.withCloseTimeout(p.close) }}, nil
}

// OpenDB makes a sql.DB over a Cluster of its own. It does not wait for
// connections: use PingContext for that. MaxSize is the reservoir's; the DB
// itself needs no limits. Closing the DB closes the cluster, within
// CloseTimeout.
func OpenDB(ctx context.Context, cfg Config) (*sql.DB, error) {
	connector, err := NewConnector(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return connector.db(), nil
}

func (c *Connector) db() *sql.DB {
	db := sql.OpenDB(c)
	db.SetMaxIdleConns(-1) // IsValid says the same, but is not asked of what was opened for somebody who has left
	return db
}

// Connect borrows a connection, and waits for one until ctx or AcquireTimeout
// ends; the error is then an *EmptyError, which is ErrReservoirEmpty, and is
// driver.ErrBadConn only with BadConnWhenEmpty. While no connection can be opened
// at all it is an *OpenError, at once.
//
// The connection has all of pgx's optional interfaces; in sql.Conn.Raw it is a
// *SQLConn, whose Conn method gives the *pgx.Conn.
func (c *Connector) Connect(ctx context.Context) (driver.Conn, error) {
	l, err := c.view.acquire(ctx)
	switch {
	case err == nil:
		return &SQLConn{inner: l.Value().sql, loan: l}, nil
	case c.view.cluster.cfg.BadConnWhenEmpty && errors.Is(err, ErrReservoirEmpty):
		return nil, fmt.Errorf("%w: %w", driver.ErrBadConn, err)
	}
	return nil, err
}

// Driver gives a driver for sql.DB.Driver to return. It cannot open anything:
// the Connector does.
func (c *Connector) Driver() driver.Driver { return connectorOnly{} }

// Close gives up the connector's part; of its own cluster, all.
func (c *Connector) Close() error { return c.close() }

// Cluster is what the connections come from.
func (c *Connector) Cluster() *Cluster { return c.view.cluster }

type connectorOnly struct{}

func (connectorOnly) Open(string) (driver.Conn, error) {
	return nil, errors.New("dsql: use sql.OpenDB with a Connector, not sql.Open")
}
