package main

import (
	"context"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/flightpool"
)

// A record is a row of the shape records.
type record struct {
	ID    int64     `arrow:"c0"`
	Name  string    `arrow:"c1"`
	Price float64   `arrow:"c2"`
	At    time.Time `arrow:"c3"`
}

// A scanner is a client that makes a record of each row, and counts them. Without rows
// as structs of its own it does so by hand, as its users do.
type scanner interface {
	structs(ctx context.Context, sql string) (int64, error)
}

func (c ours) structs(ctx context.Context, sql string) (n int64, err error) {
	for r, err := range flightpool.Rows[record](c.pool.Query(ctx, sql)) {
		if err != nil {
			return n, err
		}
		n += one(r)
	}
	return n, nil
}

func (b bare) structs(ctx context.Context, sql string) (int64, error) {
	return b.each(ctx, sql, recordsOf)
}

func (c adbcClient) structs(ctx context.Context, sql string) (int64, error) {
	return c.each(ctx, sql, recordsOf)
}

// one looks at a record, so that it is made.
func one(r record) int64 {
	if r.Name == "" || r.At.IsZero() {
		panic("a record without its values")
	}
	return 1
}

// recordsOf reads four columns by hand.
func recordsOf(rows array.RecordReader) (n int64, err error) {
	unit := rows.Schema().Field(3).Type.(*arrow.TimestampType).Unit
	for rows.Next() {
		batch := rows.RecordBatch()
		ids, names := batch.Column(0).(*array.Int64), batch.Column(1).(*array.String)
		prices, times := batch.Column(2).(*array.Float64), batch.Column(3).(*array.Timestamp)
		for row := range int(batch.NumRows()) {
			n += one(record{ids.Value(row), names.Value(row), prices.Value(row), times.Value(row).ToTime(unit)})
		}
	}
	return n, rows.Err()
}
