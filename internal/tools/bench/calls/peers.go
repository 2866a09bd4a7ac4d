package main

import (
	"context"
	"database/sql"
	"strings"

	"github.com/apache/arrow-adbc/go/adbc"
	adbcflight "github.com/apache/arrow-adbc/go/adbc/driver/flightsql"
	"github.com/apache/arrow-adbc/go/adbc/sqldriver"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	_ "github.com/apache/arrow-go/v18/arrow/flight/flightsql/driver" // database/sql's "flightsql"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/flightpool/flightpool/flightpool"
)

// A client runs a query and counts its rows. It is used by many goroutines.
type client interface {
	rows(ctx context.Context, sql string) (int64, error)
	close()
}

// A peer makes clients of at most size connections.
type peer struct {
	name string
	make func(uri string, size int) client
	env  []string // of its process
	sql  bool     // is database/sql
}

// The first is ours. The bare clients are given a connection by a channel,
// which is the pool that their users write; database/sql is one itself.
var peers = []peer{
	{name: "flightpool", make: newOurs},
	{name: "arrow-go_client", make: newBare},
	{name: "arrow-go_client_gogc400", make: newBare, env: []string{"GOGC=400"}},
	{name: "adbc", make: newADBC},
	{name: "arrow-go_database/sql", make: newArrowSQL, sql: true},
	{name: "adbc_database/sql", make: newADBCSQL, sql: true},
}

func count(r array.RecordReader) (n int64, err error) {
	for r.Next() {
		n += r.RecordBatch().NumRows()
	}
	return n, r.Err()
}

type ours struct{ pool *flightpool.FlightSQLPool }

func newOurs(uri string, size int) client { return newPool(uri, flightpool.Config{MaxSize: size}) }

func newKeeping(uri string, size int) client {
	return newPool(uri, flightpool.Config{MaxSize: size, StatementCache: 10})
}

func newPool(uri string, cfg flightpool.Config) client {
	pool, err := flightpool.New(context.Background(), uri, cfg)
	must(err)
	return ours{pool}
}

func (c ours) rows(ctx context.Context, sql string) (int64, error) {
	return countResult(c.pool.Query(ctx, sql))
}

func (c ours) close() { must(c.pool.Close(context.Background())) }

type bare struct{ clients chan *flightsql.Client }

func newBare(uri string, size int) client {
	b := bare{make(chan *flightsql.Client, size)}
	for range size {
		c, err := flightsql.NewClient(address(uri), nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
		must(err)
		b.clients <- c
	}
	return b
}

func (b bare) rows(ctx context.Context, sql string) (int64, error) { return b.each(ctx, sql, count) }

// each calls read with the rows of every endpoint, and adds up what it returns.
func (b bare) each(ctx context.Context, sql string, read func(array.RecordReader) (int64, error)) (int64, error) {
	c := <-b.clients
	defer func() { b.clients <- c }()
	info, err := c.Execute(ctx, sql)
	if err != nil {
		return 0, err
	}
	return readAll(ctx, c, info, read)
}

func readAll(ctx context.Context, c *flightsql.Client, info *flight.FlightInfo, read func(array.RecordReader) (int64, error)) (n int64, err error) {
	for _, e := range info.Endpoint {
		r, err := c.DoGet(ctx, e.Ticket)
		if err != nil {
			return 0, err
		}
		m, err := read(r)
		r.Release()
		if err != nil {
			return 0, err
		}
		n += m
	}
	return n, nil
}

func (b bare) close() {
	for range cap(b.clients) {
		must((<-b.clients).Close())
	}
}

type adbcClient struct {
	db    adbc.Database
	conns chan adbc.Connection
}

func newADBC(uri string, size int) client {
	db, err := adbcflight.NewDriver(nil).NewDatabase(map[string]string{adbc.OptionKeyURI: uri, adbcflight.OptionWithMaxMsgSize: "67108864"})
	must(err)
	c := adbcClient{db, make(chan adbc.Connection, size)}
	for range size {
		conn, err := db.Open(context.Background())
		must(err)
		c.conns <- conn
	}
	return c
}

func (c adbcClient) rows(ctx context.Context, sql string) (int64, error) {
	return c.each(ctx, sql, count)
}

func (c adbcClient) each(ctx context.Context, sql string, read func(array.RecordReader) (int64, error)) (int64, error) {
	conn := <-c.conns
	defer func() { c.conns <- conn }()
	stmt, err := conn.NewStatement()
	if err != nil {
		return 0, err
	}
	defer func() { _ = stmt.Close() }()
	if err := stmt.SetSqlQuery(sql); err != nil {
		return 0, err
	}
	return executed(ctx, stmt, read)
}

func executed(ctx context.Context, stmt adbc.Statement, read func(array.RecordReader) (int64, error)) (int64, error) {
	r, _, err := stmt.ExecuteQuery(ctx)
	if err != nil {
		return 0, err
	}
	defer r.Release()
	return read(r)
}

func (c adbcClient) close() {
	for range cap(c.conns) {
		must((<-c.conns).Close())
	}
	must(c.db.Close())
}

type sqlClient struct{ db *sql.DB }

func newArrowSQL(uri string, size int) client {
	return newSQL("flightsql", "flightsql://"+address(uri), size)
}

func newADBCSQL(uri string, size int) client { return newSQL("adbc", adbc.OptionKeyURI+"="+uri, size) }

func init() { sql.Register("adbc", sqldriver.Driver{Driver: adbcflight.NewDriver(nil)}) }

func newSQL(driver, dsn string, size int) client {
	db, err := sql.Open(driver, dsn)
	must(err)
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return sqlClient{db}
}

func (c sqlClient) rows(ctx context.Context, query string) (n int64, err error) {
	r, err := c.db.QueryContext(ctx, query)
	if err != nil {
		return 0, err
	}
	defer func() { _ = r.Close() }()
	for r.Next() {
		n++
	}
	return n, r.Err()
}

func (c sqlClient) close() { must(c.db.Close()) }

func address(uri string) string {
	_, host, _ := strings.Cut(uri, "://")
	return host
}
