package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/apache/arrow-adbc/go/adbc"
	adbcflight "github.com/apache/arrow-adbc/go/adbc/driver/flightsql"
	"github.com/apache/arrow-adbc/go/adbc/sqldriver"
	_ "github.com/apache/arrow-go/v18/arrow/flight/flightsql/driver" // database/sql's "flightsql"

	_ "github.com/flightpool/flightpool/flightpool/sqldriver" // and "flightpool"
)

type sqlClient struct{ db *sql.DB }

// throughSQL has the pool used by database/sql.
func throughSQL(run func(peer, string) result) func(peer, string) result {
	return func(p peer, uri string) result {
		if p.name == peers[0].name {
			p.make = newOursSQL
		}
		return run(p, uri)
	}
}

func newOursSQL(uri string, size int) client {
	return newSQL("flightpool", fmt.Sprint(uri, "?max_size=", size), size)
}

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

func (c sqlClient) structs(ctx context.Context, query string) (n int64, err error) {
	rows, err := c.db.QueryContext(ctx, query)
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var r record
		if err := rows.Scan(&r.ID, &r.Name, &r.Price, &r.At); err != nil {
			return n, err
		}
		n += one(r)
	}
	return n, rows.Err()
}
