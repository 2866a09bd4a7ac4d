package main

import (
	"cmp"
	"context"
	"net/url"

	"github.com/flightpool/flightpool/flightpool"
)

// A product is a Flight SQL server of another maker: how it is started, and
// the SQL that it understands.
type product struct {
	name  string
	start func(ctx context.Context, cfg config, addr, dir string) (*server, error)

	// missing says what this machine lacks to run the product, and is empty
	// when it lacks nothing.
	missing func(cfg config) string

	user, password string

	// authorization is the header of that name, in place of a user and a
	// password.
	authorization string

	probe string   // HealthCheck.SQL; empty: the default
	setup []string // changes to make after each start

	values  string // a query for one row, without side effect
	large   string // a query for many rows
	stream  string // a query for more rows than anybody reads; empty: no row leaves the server before the last one is made
	endless string // a query for one row that works for minutes
	wrong   string // a query that fails
	param   string // a query with one parameter, a number

	// paramRows is a query for several batches with one parameter, ?, a number on which its rows depend. It is
	// needed where param works.
	paramRows string

	create string // makes the table %s with a column n of 64-bit numbers; empty: CREATE TABLE with a BIGINT
	table  string // a table that exists, for calls that ask for one's keys

	// fragile is a product that a refused statement costs one of the few
	// connections to its database, for good. It is started anew after each feature, since
	// the pool asks questions of its own.
	fragile bool
}

func (p *product) creates() string { return cmp.Or(p.create, "CREATE TABLE %s (n BIGINT)") }

// uri is the pool's target.
func (p *product) uri(addr string) string {
	u := url.URL{Scheme: "grpc", Host: addr}
	return u.String()
}

// dsn is the same with the credentials, as a command takes it.
func (p *product) dsn(addr string) string {
	u := url.URL{Scheme: "grpc", Host: addr}
	if p.user != "" {
		u.User = url.UserPassword(p.user, p.password)
	}
	return u.String()
}

// pool makes a pool on the product at addr.
func (p *product) pool(ctx context.Context, addr string, cfg flightpool.Config) (*flightpool.FlightSQLPool, error) {
	cfg.HealthCheck.SQL = p.probe
	switch {
	case p.user != "":
		cfg.Auth = flightpool.BasicAuth(p.user, p.password)
	case p.authorization != "":
		cfg.Auth = flightpool.HeaderAuth(p.authorization)
	}
	return flightpool.New(ctx, p.uri(addr), cfg)
}
