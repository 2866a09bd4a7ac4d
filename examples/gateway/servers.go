package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/duckdb"
	"github.com/flightpool/flightpool/testserver/localdeps"
)

// remote is one of the servers, which can be killed and comes back where it was.
type remote interface {
	addr() string
	kill()
	start(ctx context.Context) error
	// connections is how many there are of the gateway's, by the server's own count.
	connections(ctx context.Context) (int, error)
	close()
}

// duck is a DuckDB over Flight SQL in this process. It has the registry's
// statistics as views.
type duck struct {
	server *testserver.Server
	at     string // once it is known
	table  func(name string) (arrow.RecordBatch, error)
}

func (d *duck) addr() string { return d.at }

func (d *duck) start(ctx context.Context) error {
	engine, err := duckdb.New(ctx, duckdb.Config{})
	if err != nil {
		return err
	}
	for _, name := range []string{registry.TablePools, registry.TableUsers, registry.TableConnections} {
		err = errors.Join(err, engine.Live(ctx, name, func() (arrow.RecordBatch, error) { return d.table(name) }))
	}
	if err != nil {
		return errors.Join(err, engine.Close())
	}
	listen := d.at
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	server, err := testserver.Start(testserver.Options{Engine: engine, Listen: listen, Users: map[string]string{"app": "one", "report": "two"}})
	if err != nil {
		return errors.Join(err, engine.Close())
	}
	d.server, d.at = server, server.Addr()
	return nil
}

func (d *duck) kill()  { _ = d.server.Close() } // it is a crash
func (d *duck) close() { _ = d.server.Close() } // what it says does not matter any more

func (d *duck) connections(context.Context) (int, error) {
	return d.server.Ledger().Snapshot().Conns, nil
}

type postgres struct{ *localdeps.Postgres }

func startPostgres(ctx context.Context) (postgres, error) {
	p, err := localdeps.StartPostgres(ctx, localdeps.PostgresOptions{})
	if err != nil {
		return postgres{}, err
	}
	db, err := sql.Open("pgx", p.DSN())
	if err != nil {
		p.Close()
		return postgres{}, err
	}
	_, appErr := db.ExecContext(ctx, "CREATE USER app PASSWORD 'one'")
	_, reportErr := db.ExecContext(ctx, "CREATE USER report PASSWORD 'two'")
	if err := errors.Join(appErr, reportErr, db.Close()); err != nil {
		p.Close()
		return postgres{}, err
	}
	return postgres{p}, nil
}

func (p postgres) addr() string                    { return p.Addr() }
func (p postgres) kill()                           { p.Kill() }
func (p postgres) start(ctx context.Context) error { return p.Start(ctx) }
func (p postgres) close()                          { p.Close() }

func (p postgres) connections(ctx context.Context) (int, error) {
	return ask[int](ctx, "pgx", p.DSN(), "SELECT count(*) FROM pg_stat_activity WHERE usename IN ('app', 'report')")
}

type maria struct{ *localdeps.MariaDB }

func startMaria(ctx context.Context) (maria, error) {
	m, err := localdeps.StartMariaDB(ctx, localdeps.MariaDBOptions{Init: []string{
		"CREATE USER IF NOT EXISTS app IDENTIFIED BY 'one'", "GRANT ALL ON test.* TO app",
		"CREATE USER IF NOT EXISTS report IDENTIFIED BY 'two'", "GRANT SELECT ON test.* TO report",
	}})
	return maria{m}, err
}

func (m maria) addr() string                    { return m.Addr() }
func (m maria) kill()                           { m.Kill() }
func (m maria) start(ctx context.Context) error { return m.Start(ctx) }
func (m maria) close()                          { m.Close() }

func (m maria) connections(ctx context.Context) (int, error) {
	return ask[int](ctx, "mysql", m.DSN(), "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER IN ('app', 'report')")
}

// given is a server that runs elsewhere. It is only used.
type given string

func (g given) addr() string                           { return string(g) }
func (given) kill()                                    {}
func (given) start(context.Context) error              { return nil }
func (given) connections(context.Context) (int, error) { return 0, nil }
func (given) close()                                   {}

// ask gives the one value of a query, over a connection of its own.
func ask[T any](ctx context.Context, driver, dsn, query string) (value T, err error) {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return value, err
	}
	err = db.QueryRowContext(ctx, query).Scan(&value)
	return value, errors.Join(err, db.Close())
}

// startAll starts the servers, or takes those whose address is given.
func startAll(ctx context.Context, o options, table func(name string) (arrow.RecordBatch, error)) (map[string]remote, error) {
	all := map[string]remote{}
	d := &duck{table: table}
	if err := d.start(ctx); err != nil {
		return all, err
	}
	all["duck"] = d
	all["pg"], all["maria"] = given(o.postgres), given(o.mariadb)
	if o.postgres == "" {
		p, err := startPostgres(ctx)
		if err != nil {
			delete(all, "pg")
			return all, err
		}
		all["pg"] = p
	}
	if o.mariadb == "" {
		m, err := startMaria(ctx)
		if err != nil {
			delete(all, "maria")
			return all, err
		}
		all["maria"] = m
	}
	return all, nil
}

// places are what ${…} in the definitions stands for.
func places(all map[string]remote) (map[string]string, error) {
	values := map[string]string{}
	for variable, name := range map[string]string{"DUCK": "duck", "PG": "pg", "MARIA": "maria"} {
		host, port, err := net.SplitHostPort(all[name].addr())
		if err != nil {
			return nil, fmt.Errorf("the address of %s: %w", name, err)
		}
		values[variable+"_HOST"], values[variable+"_PORT"] = host, port
	}
	return values, nil
}
