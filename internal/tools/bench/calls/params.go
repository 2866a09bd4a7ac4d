package main

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/flightpool/flightpool/flightpool"
)

// An execution runs a statement with one parameter and counts its rows.
type execution func(ctx context.Context, arg int64) (int64, error)

// A preparer is a client with prepared statements.
type preparer interface {
	// withParam prepares the statement, executes it and closes it.
	withParam(ctx context.Context, sql string, arg int64) (int64, error)
	// prepare prepares it once, on a connection that it keeps until end.
	prepare(ctx context.Context, sql string) (run execution, end func())
}

var paramSchema = arrow.NewSchema([]arrow.Field{{Name: "1", Type: arrow.PrimitiveTypes.Int64}}, nil)

func paramRow(arg int64) arrow.RecordBatch {
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	b.Append(arg)
	column := b.NewArray()
	defer column.Release()
	return array.NewRecordBatch(paramSchema, []arrow.Array{column}, 1)
}

func (c ours) withParam(ctx context.Context, sql string, arg int64) (int64, error) {
	return countResult(c.pool.Query(ctx, sql, arg))
}

func (c ours) prepare(ctx context.Context, sql string) (execution, func()) {
	s, err := c.pool.AcquireSession(ctx)
	must(err)
	stmt, err := s.PrepareQuery(ctx, sql)
	must(err)
	run := func(ctx context.Context, arg int64) (int64, error) { return countResult(stmt.Query(ctx, arg)) }
	return run, func() { must(s.Close()) }
}

func countResult(r *flightpool.QueryResult, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	defer r.Release()
	return count(r)
}

func (b bare) withParam(ctx context.Context, sql string, arg int64) (int64, error) {
	run, end := b.prepare(ctx, sql)
	defer end()
	return run(ctx, arg)
}

func (b bare) prepare(ctx context.Context, sql string) (execution, func()) {
	c := <-b.clients
	stmt, err := c.Prepare(ctx, sql)
	must(err)
	run := func(ctx context.Context, arg int64) (n int64, err error) {
		row := paramRow(arg)
		defer row.Release()
		stmt.SetParameters(row)
		info, err := stmt.Execute(ctx)
		if err != nil {
			return 0, err
		}
		return readAll(ctx, c, info, count)
	}
	return run, func() {
		must(stmt.Close(ctx))
		b.clients <- c
	}
}

func (c adbcClient) withParam(ctx context.Context, sql string, arg int64) (int64, error) {
	run, end := c.prepare(ctx, sql)
	defer end()
	return run(ctx, arg)
}

func (c adbcClient) prepare(ctx context.Context, sql string) (execution, func()) {
	conn := <-c.conns
	stmt, err := conn.NewStatement()
	must(err)
	must(stmt.SetSqlQuery(sql))
	must(stmt.Prepare(ctx))
	run := func(ctx context.Context, arg int64) (int64, error) {
		row := paramRow(arg)
		defer row.Release()
		if err := stmt.Bind(ctx, row); err != nil {
			return 0, err
		}
		return executed(ctx, stmt, count)
	}
	return run, func() {
		must(stmt.Close())
		c.conns <- conn
	}
}
