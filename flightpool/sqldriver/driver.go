package sqldriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/badconn"
)

// Name is that of the driver in database/sql.
const Name = "flightpool"

func init() { sql.Register(Name, Driver{}) }

// Driver is registered with database/sql as "flightpool". Its data source names
// are the targets of flightpool.New, see there and flightpool.ParseTarget:
//
//	grpc+tls://warehouse:31337?max_size=8
//	flightsql://user:password@warehouse:31337
//
// sql.Open reads the name and makes no connection. The pool is made with the first, which
// also tells of options that do not go together, and closed by the Close of the DB.
type Driver struct{}

var _ driver.DriverContext = Driver{}

// OpenConnector is part of driver.DriverContext. The error of a name does not
// show its secrets.
func (Driver) OpenConnector(name string) (driver.Connector, error) {
	_, cfg, err := flightpool.ParseTarget(name)
	if err != nil {
		return nil, err
	}
	return newDSNConnector(name, cfg), nil
}

// Open is part of driver.Driver: a connection with a pool of its own, for those
// who use the driver without database/sql. The connection's Close closes it.
func (d Driver) Open(name string) (driver.Conn, error) {
	c, err := d.OpenConnector(name)
	if err != nil {
		return nil, err
	}
	opened, err := c.Connect(detached())
	if err != nil {
		_ = c.(io.Closer).Close() // the reason for it counts
		return nil, err
	}
	opened.(*conn).afterClose = func() { _ = c.(io.Closer).Close() }
	return opened, nil
}

// detached is the context of what has no caller's.
func detached() context.Context { return context.Background() }

// OpenDB is the pool as a *sql.DB. Closing the DB does not close the pool.
func OpenDB(p *flightpool.FlightSQLPool) *sql.DB { return sql.OpenDB(NewConnector(p)) }

// NewConnector is the pool as a connector, for sql.OpenDB and for what wraps
// connectors.
func NewConnector(p *flightpool.FlightSQLPool) driver.Connector { return &poolConnector{p} }

// Pool is the pool behind db, or nil: that of another driver, or one that is not
// made before the first connection. Its Stats tell what is idle, in use and
// waited for; those of db tell of the sessions that db has borrowed alone.
func Pool(db *sql.DB) *flightpool.FlightSQLPool {
	if d, ok := db.Driver().(interface {
		pool() *flightpool.FlightSQLPool
	}); ok {
		return d.pool()
	}
	return nil
}

// poolConnector is a connector of somebody's pool.
type poolConnector struct{ p *flightpool.FlightSQLPool }

// Connect is part of driver.Connector.
func (c *poolConnector) Connect(ctx context.Context) (driver.Conn, error) { return connect(ctx, c.p) }

// Driver is part of driver.Connector.
func (c *poolConnector) Driver() driver.Driver {
	return poolDriver{getPool: func() *flightpool.FlightSQLPool { return c.p }}
}

// poolDriver is what sql.DB.Driver returns.
type poolDriver struct {
	Driver
	getPool func() *flightpool.FlightSQLPool
}

func (d poolDriver) pool() *flightpool.FlightSQLPool { return d.getPool() }

func connect(ctx context.Context, p *flightpool.FlightSQLPool) (driver.Conn, error) {
	s, err := p.AcquireSession(ctx)
	if err != nil {
		return nil, badconn.Hide(err)
	}
	c := &conn{pool: p, baseCtx: context.WithoutCancel(ctx), lastCtx: ctx}
	c.unused.hold(s)
	return c, nil
}

type routeKey struct{}

// WithRoute has the statements that a *sql.DB is given with the
// returned context sent by route, as QueryOptions.Route has it for the pool's
// own calls: RouteQuery for the rows of a text that is refused with
// ErrAmbiguousRoute. A prepared statement needs it for Prepare and for Query:
// database/sql prepares it again where it is run on another connection. Exec
// needs none: where the text leaves it open, it sends an update.
func WithRoute(ctx context.Context, route flightpool.Route) context.Context {
	return context.WithValue(ctx, routeKey{}, route)
}

func routeOf(ctx context.Context) flightpool.Route {
	route, _ := ctx.Value(routeKey{}).(flightpool.Route)
	return route
}
