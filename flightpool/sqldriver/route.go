package sqldriver

import (
	"context"

	"github.com/flightpool/flightpool/flightpool"
)

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
