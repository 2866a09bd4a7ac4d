package adbcpool

import (
	"context"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/adbcconn"
	"github.com/flightpool/flightpool/internal/driverapi"
	"github.com/flightpool/flightpool/internal/errjoin"
)

// Open makes a pool whose statements go through ADBC's own Flight SQL driver.
// target and cfg are those of flightpool.New, and all of cfg applies: the
// driver runs on transports that the pool dials, so that credentials, TLS,
// limits, lost sessions and server-side cancel are the pool's. cfg.Layer must
// be nil.
//
// It fails when the environment variable OTEL_TRACES_EXPORTER names an
// exporter that the driver does not know; "none" is one of these.
func Open(ctx context.Context, target string, cfg flightpool.Config) (*flightpool.FlightSQLPool, error) {
	if cfg.Layer != nil {
		return nil, driverapi.BadArgument("Open", ownedError("Layer", "the driver's place"))
	}
	driver, err := adbcconn.NewDriver(cfg.Allocator)
	if err != nil {
		return nil, driverapi.BadArgument("Open", err)
	}
	cfg.Layer = driver
	p, err := flightpool.New(ctx, target, cfg)
	if err != nil {
		return nil, errjoin.Join(err, driver.Close())
	}
	return p, nil
}
