package adbcpool

import (
	"context"
	"sync"

	"github.com/apache/arrow-adbc/go/adbc"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/flightpool"
)

// Database is the pool as an ADBC database: Open takes a session out of the
// pool, Connection.Close cleans it and gives it back. Whatever speaks ADBC gets
// pooled connections, of which statements are cancelled on the server when
// their context ends.
//
// Closing the database does not close the pool. Options are ADBC's own and, for
// session options and call headers, those of its Flight SQL driver. Those of
// connections may be set on the database, for the connections that are opened
// later, call headers on all three: they go with catalogue calls and statements,
// not with the ends of transactions. Substrait, partitions and incremental
// execution are not implemented.
//
// A connection is used by one goroutine at a time, and has one result open at
// a time. A result outlives its statement; the statement's next execution, the
// last Release and the connection's Close end it, the first and the last of
// these with an error where it has not been read to its end. Errors are adbc.Error for
// errors.As, which also finds the pool's own *flightpool.Error in them.
func Database(p *flightpool.FlightSQLPool) adbc.Database {
	return &database{textOptions: textOptions{"database"}, pool: p}
}

// database is safe for use by any goroutine.
type database struct {
	textOptions
	pool *flightpool.FlightSQLPool

	mu struct {
		sync.Mutex
		settings []dbOption // in the order in which they were set
	}
}

var _ adbc.GetSetOptions = (*database)(nil)

// Open is part of adbc.Database.
func (d *database) Open(ctx context.Context) (adbc.Connection, error) {
	s, err := d.pool.AcquireSession(ctx)
	if err != nil {
		return nil, toADBC(err)
	}
	c := &connection{handle: s, baseCtx: context.WithoutCancel(ctx), headers: metadata.MD{}}
	if err := d.configure(ctx, c); err != nil {
		_ = c.Close() // its clean-up has the pool's context; what failed is told
		return nil, err
	}
	return c, nil
}

// Close is part of adbc.Database. The pool lives on.
func (d *database) Close() error { return nil }
