package main

import (
	"context"
	"strings"

	"github.com/apache/arrow-adbc/go/adbc"
	adbcflight "github.com/apache/arrow-adbc/go/adbc/driver/flightsql"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
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
	kind kind
	make func(uri string, size int) client
	env  []string // of its process
}

// A kind is what a peer is. A work names the kinds that it is compared with.
type kind uint8

const (
	flightClients kind = 1 << iota
	sqlDrivers         // of database/sql
	limits             // do less than any client can: they show how far there is to go
)

// The first is ours. The bare clients are given a connection by a channel,
// which is the pool that their users write; database/sql is one itself.
var peers = []peer{
	{name: "flightpool", make: newOurs},
	{name: "arrow-go_client", kind: flightClients, make: newBare},
	{name: "arrow-go_client_gogc400", kind: flightClients, make: newBare, env: []string{"GOGC=400"}},
	{name: "adbc", kind: flightClients, make: newADBC},
	{name: "arrow-go_database/sql", kind: sqlDrivers, make: newArrowSQL},
	{name: "adbc_database/sql", kind: sqlDrivers, make: newADBCSQL},
	{name: "tcp_bytes", kind: limits, make: newTCPBytes},
	{name: "grpc_bytes", kind: limits, make: newGRPCBytes},
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

func address(uri string) string {
	_, host, _ := strings.Cut(uri, "://")
	return host
}
