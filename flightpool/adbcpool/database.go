package adbcpool

import (
	"context"

	"github.com/apache/arrow-adbc/go/adbc"

	"github.com/flightpool/flightpool/flightpool"
)

// Database is the pool as an ADBC database: Open takes a session out of the
// pool, Connection.Close cleans it and gives it back. Whatever speaks ADBC gets
// pooled connections, of which statements are cancelled on the server when
// their context ends.
//
// Closing the database does not close the pool. It has no options; those of a
// connection and of a statement are ADBC's own and, for the Flight SQL
// driver's session options and call headers, that driver's. Substrait,
// partitions and incremental execution are not implemented.
//
// A connection is used by one goroutine at a time, and has one result open at
// a time. Errors are adbc.Error for errors.As, which also finds the pool's own
// *flightpool.Error in them.
func Database(p *flightpool.FlightSQLPool) adbc.Database { return &database{p} }

type database struct{ pool *flightpool.FlightSQLPool }

// SetOptions is part of adbc.Database.
func (d *database) SetOptions(options map[string]string) error {
	for key := range options {
		return notImplemented("database option " + key)
	}
	return nil
}

// Open is part of adbc.Database.
func (d *database) Open(ctx context.Context) (adbc.Connection, error) {
	s, err := d.pool.AcquireSession(ctx)
	if err != nil {
		return nil, toADBC(err)
	}
	return &connection{s: s, late: context.WithoutCancel(ctx)}, nil
}

// Close is part of adbc.Database. The pool lives on.
func (d *database) Close() error { return nil }
