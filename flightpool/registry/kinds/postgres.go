package kinds

import (
	"context"
	"database/sql/driver"
	"errors"
	"net"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/reservoir/sqlconn"
)

// PostgreSQL is the kind postgresql. Target is a URL or a DSN of pgx; without it the
// options host, port and dbname say where the server is, and the others are
// settings of pgx or of the session. See registry.PostgreSQLTarget for the credentials.
func PostgreSQL() registry.Kind {
	return registry.Kind{Name: "postgresql", SQL: sqlconn.PostgreSQL, Validate: registry.ValidatePostgreSQL, Connector: func(r registry.ConnectParams) (driver.Connector, error) {
		source, err := registry.PostgreSQLTarget(r)
		if err != nil {
			return nil, err
		}
		cfg, err := pgx.ParseConfig(source)
		if err != nil {
			return nil, errors.New("target: pgx does not take it") // its words may quote the password
		}
		dial := cfg.DialFunc
		cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return r.CountBytes(c), nil
		}
		return stdlib.GetConnector(*cfg), nil
	}}
}
