package adbcpool

import (
	"context"
	"database/sql"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/sqldriver"
)

// OpenDB is the pool as a *sql.DB.
//
// Deprecated: use sqldriver.OpenDB, which is the same without ADBC.
func OpenDB(p *flightpool.FlightSQLPool) *sql.DB { return sqldriver.OpenDB(p) }

// WithRoute says how the statements of a *sql.DB are sent.
//
// Deprecated: use sqldriver.WithRoute.
func WithRoute(ctx context.Context, route flightpool.Route) context.Context {
	return sqldriver.WithRoute(ctx, route)
}
