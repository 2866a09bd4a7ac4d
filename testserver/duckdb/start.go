//go:build duckdb_arrow

package duckdb

import (
	"context"
	"errors"

	"github.com/flightpool/flightpool/testserver"
)

// Start serves a DuckDB database over Flight SQL from this process. It opens
// an Engine from cfg, which takes the place of opts.Engine. Close of the
// Server closes the database too.
func Start(ctx context.Context, cfg Config, opts testserver.Options) (*testserver.Server, error) {
	engine, err := New(ctx, cfg)
	if err != nil {
		return nil, err
	}
	opts.Engine = engine
	srv, err := testserver.Start(opts)
	if err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	return srv, nil
}
