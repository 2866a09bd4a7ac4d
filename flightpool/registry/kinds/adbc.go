package kinds

import (
	"context"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/adbcpool"
	"github.com/flightpool/flightpool/flightpool/registry"
)

// ADBC is the kind adbc: what flightsql is, and takes, but over ADBC's driver.
func ADBC() registry.Kind {
	return registry.Kind{Name: "adbc", Validate: registry.ValidateFlight, Flight: func(ctx context.Context, r registry.ConnectParams) (*flightpool.FlightSQLPool, error) {
		target, cfg := registry.FlightTarget(r)
		return adbcpool.Open(ctx, target, cfg)
	}}
}
