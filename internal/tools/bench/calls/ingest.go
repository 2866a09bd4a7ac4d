package main

import (
	"context"
	"fmt"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"

	"github.com/flightpool/flightpool/flightpool"
)

// A loader is a client that loads rows in bulk, and tells how many were stored.
type loader interface {
	ingest(ctx context.Context, table string, rows array.RecordReader) (int64, error)
}

// ingest loads so many batches.
func ingest(shape string, rowsOfBatch, batches int) func(peer, string) result {
	return func(p peer, uri string) result {
		c := p.make(uri, 1)
		defer c.close()
		batch := makeBatch(shape, rowsOfBatch)
		defer batch.Release()
		load := func(ctx context.Context, batches int) {
			again := make([]arrow.RecordBatch, batches)
			for i := range again {
				again[i] = batch
			}
			rows, err := array.NewRecordReader(batch.Schema(), again)
			must(err)
			defer rows.Release()
			want := int64(rowsOfBatch) * int64(batches)
			n, err := c.(loader).ingest(ctx, fmt.Sprint("rows_", want), rows)
			must(err)
			if n != want {
				panic(fmt.Sprint(n, " rows stored of ", want))
			}
		}
		load(context.Background(), batches/10)
		return timed(batches, batches, 1000, func(ctx context.Context) { load(ctx, batches) })
	}
}

func (c ours) ingest(ctx context.Context, table string, rows array.RecordReader) (int64, error) {
	return c.pool.Ingest(ctx, table, rows, flightpool.IngestOptions{})
}

func (b bare) ingest(ctx context.Context, table string, rows array.RecordReader) (int64, error) {
	c := <-b.clients
	defer func() { b.clients <- c }()
	return c.ExecuteIngest(ctx, rows, &flightsql.ExecuteIngestOpts{Table: table, TableDefinitionOptions: &flightsql.TableDefinitionOptions{
		IfNotExist: flightsql.TableDefinitionOptionsTableNotExistOptionCreate, IfExists: flightsql.TableDefinitionOptionsTableExistsOptionAppend,
	}})
}

func (c adbcClient) ingest(ctx context.Context, table string, rows array.RecordReader) (int64, error) {
	conn := <-c.conns
	defer func() { c.conns <- conn }()
	stmt, err := conn.NewStatement()
	if err != nil {
		return 0, err
	}
	defer func() { _ = stmt.Close() }()
	must(stmt.SetOption(adbc.OptionKeyIngestTargetTable, table))
	must(stmt.SetOption(adbc.OptionKeyIngestMode, adbc.OptionValueIngestModeCreateAppend))
	if err := stmt.BindStream(ctx, rows); err != nil {
		return 0, err
	}
	return stmt.ExecuteUpdate(ctx)
}
