package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
)

// A client is one way to use a Flight SQL server. The same features are run
// through each, so that what one of them can do is asked of the pool too.
type client interface {
	// query runs a statement with rows and returns them as text. params is nil
	// or a batch of one row.
	query(ctx context.Context, sql string, params arrow.RecordBatch) (rows, error)

	// update runs a change, once for each row of params, if there are any.
	update(ctx context.Context, sql string, params arrow.RecordBatch) error

	// prepared prepares a query and runs it twice.
	prepared(ctx context.Context, sql string) (rows, error)

	// transaction runs changes in a transaction and commits it, or rolls it back.
	transaction(ctx context.Context, commit bool, changes ...string) error

	// ingest appends batch to an existing table.
	ingest(ctx context.Context, table string, batch arrow.RecordBatch) error

	// catalogue runs one catalogue call and counts its rows.
	catalogue(ctx context.Context, call catalogueCall, table string) (int64, error)

	close(ctx context.Context) error
}

// catalogueCall names a catalogue call.
type catalogueCall string

// The catalogue calls of Flight SQL.
const (
	catalogs    catalogueCall = "catalogs"
	schemas     catalogueCall = "schemas"
	tables      catalogueCall = "tables"
	tableTypes  catalogueCall = "table types"
	primaryKeys catalogueCall = "primary keys"
	sqlInfo     catalogueCall = "SqlInfo"
)

// rows is what a query gave, the first of them as text.
type rows struct {
	count int64
	text  string
}

// maxText is how many rows are kept as text.
const maxText = 10

func (r *rows) add(batch arrow.RecordBatch) {
	for i := range int(batch.NumRows()) {
		if r.count++; r.count > maxText {
			continue
		}
		var values []string
		for _, column := range batch.Columns() {
			values = append(values, column.ValueStr(i))
		}
		r.text += "(" + strings.Join(values, ", ") + ")"
	}
}

// readRows reads a result to its end.
func readRows(r array.RecordReader) (rows, error) {
	var all rows
	for r.Next() {
		all.add(r.RecordBatch())
	}
	return all, r.Err()
}

// errNoCall says that a client has no such call at all.
var errNoCall = errors.New("the client has no such call")

// poolClient is ours.
type poolClient struct{ pool *flightpool.FlightSQLPool }

func (c poolClient) query(ctx context.Context, sql string, params arrow.RecordBatch) (rows, error) {
	result, err := c.pool.QueryWithOptions(ctx, sql, flightpool.QueryOptions{Params: params})
	return c.read(result, err)
}

func (poolClient) read(result *flightpool.QueryResult, err error) (rows, error) {
	if err != nil {
		return rows{}, err
	}
	defer result.Release()
	return readRows(result)
}

func (c poolClient) update(ctx context.Context, sql string, params arrow.RecordBatch) error {
	_, err := c.pool.UpdateWithOptions(ctx, sql, flightpool.QueryOptions{Params: params})
	return err
}

func (c poolClient) prepared(ctx context.Context, sql string) (got rows, err error) {
	h, err := c.pool.AcquireSession(ctx)
	if err != nil {
		return rows{}, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	q, err := h.PrepareQuery(ctx, sql)
	if err != nil {
		return rows{}, err
	}
	for range 2 {
		result, err := q.Query(ctx)
		if got, err = c.read(result, err); err != nil {
			return rows{}, err
		}
	}
	return got, q.Close(ctx)
}

func (c poolClient) transaction(ctx context.Context, commit bool, changes ...string) (err error) {
	h, err := c.pool.AcquireSession(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	if err := h.BeginTransaction(ctx); err != nil {
		return err
	}
	for _, sql := range changes {
		if _, err := h.Update(ctx, sql); err != nil {
			return err
		}
	}
	if commit {
		return h.Commit(ctx)
	}
	return h.Rollback(ctx)
}

func (c poolClient) ingest(ctx context.Context, table string, batch arrow.RecordBatch) error {
	reader, err := array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch})
	if err != nil {
		return err
	}
	defer reader.Release()
	_, err = c.pool.Ingest(ctx, table, reader, flightpool.IngestOptions{Mode: backend.IngestAppend})
	return err
}

func (c poolClient) catalogue(ctx context.Context, call catalogueCall, table string) (int64, error) {
	var result *flightpool.QueryResult
	var err error
	switch call {
	case catalogs:
		result, err = c.pool.Catalogs(ctx)
	case schemas:
		result, err = c.pool.Schemas(ctx, nil, nil)
	case tables:
		result, err = c.pool.Tables(ctx, flightpool.TableFilter{})
	case tableTypes:
		result, err = c.pool.TableTypes(ctx)
	case primaryKeys:
		result, err = c.pool.PrimaryKeys(ctx, flightpool.TableRef{Table: table})
	case sqlInfo:
		result, err = c.pool.SQLInfo(ctx)
	default:
		return 0, fmt.Errorf("%s: %w", call, errNoCall)
	}
	got, err := c.read(result, err)
	return got.count, err
}

func (c poolClient) close(ctx context.Context) error { return c.pool.Close(ctx) }
