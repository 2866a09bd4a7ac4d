package kinds

import (
	"context"
	"database/sql/driver"
	"errors"
	"net"
	"net/url"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/reservoir/sqlconn"
)

// PostgreSQL is the kind postgresql. Target is a URL or a DSN of pgx; without it the
// options host, port and dbname say where the server is, and the others are
// settings of pgx or of the session.
func PostgreSQL() registry.Kind {
	return registry.Kind{Name: "postgresql", SQL: sqlconn.PostgreSQL, Validate: registry.ValidatePostgreSQL, Connector: func(r registry.ConnectParams) (driver.Connector, error) {
		source, err := registry.SQLTarget(r)
		if err != nil {
			return nil, err
		}
		if source == "" {
			source = postgresURL(r)
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

func postgresURL(r registry.ConnectParams) string {
	at := func(name, byDefault string) string {
		if v := r.Options[name]; v != "" {
			return v
		}
		return byDefault
	}
	settings := url.Values{}
	for name, v := range r.Options {
		if !slices.Contains([]string{"host", "port", "dbname"}, name) {
			settings.Set(name, v)
		}
	}
	u := url.URL{Scheme: "postgres", Host: net.JoinHostPort(at("host", "localhost"), at("port", "5432")), Path: "/" + at("dbname", ""), RawQuery: settings.Encode()}
	if r.User != "" || r.Password != "" {
		u.User = url.UserPassword(r.User, r.Password)
	}
	return u.String()
}
