package adbcconn

import (
	"cmp"
	"context"
	"fmt"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/backend"
)

// load has the driver load rows, which have failed where it is not sent all of them. The caller holds driverLock.
func (c *GenericConn) load(ctx context.Context, contained *containedRows, opts backend.IngestOptions, call backend.Call) (int64, error) {
	if c.isDuckDB() {
		return c.loadByWayOfTemp(ctx, contained, opts, call)
	}
	n, err := c.loadFitted(ctx, contained, opts, call)
	if !c.isPostgreSQL() { // whose driver reads no rows any more: goroutines of others' may be about to
		return n, err
	}
	if e, ok := adbcError(err); ok && call.Tx == "" && contained.batch == nil && opts.Mode == backend.IngestCreateAppend && isMadeMeanwhile(e.Code) {
		return c.loadFitted(ctx, contained, opts, call) // no row was read
	}
	return n, err
}

// isMadeMeanwhile reports whether CREATE TABLE IF NOT EXISTS has failed so since another transaction has made the table, and committed. PostgreSQL's
// driver gives no SQLSTATE for that.
func isMadeMeanwhile(code adbc.Status) bool {
	return code == adbc.StatusIntegrity || code == adbc.StatusAlreadyExists
}

// loadFitted is load where the rows fit the table that is there.
//
// PostgreSQL's and SQLite's drivers make a table, and load it, in a transaction, unless PostgreSQL's has it already and loads by one COPY: by
// themselves they leave an empty one where the rows are refused, also in place of the table that they were to replace, and SQLite's a
// transaction where there is no such table or column.
//
// INVARIANT: rows that are not stored leave what there was, and no transaction.
func (c *GenericConn) loadFitted(ctx context.Context, contained *containedRows, opts backend.IngestOptions, call backend.Call) (int64, error) {
	rows, isThere, err := c.fitToTable(ctx, contained, opts) // outside of a transaction of ours, which a server that refuses the question would end
	if err != nil {
		return 0, err
	}
	if makes := !isThere && opts.Mode != backend.IngestAppend; call.Tx == "" && (c.isSQLite() || makes && c.isPostgreSQL()) {
		return c.loadWhole(ctx, contained, rows, opts, call)
	}
	return c.loadFitting(ctx, contained, rows, opts, call)
}

// loadWhole has the driver load rows in a transaction. The caller holds driverLock.
func (c *GenericConn) loadWhole(ctx context.Context, contained *containedRows, rows array.RecordReader, opts backend.IngestOptions, call backend.Call) (int64, error) {
	err := c.autocommit(false)
	if e, ok := adbcError(err); ok && faultOf(e) == backend.FaultUnsupported {
		return c.loadFitting(ctx, contained, rows, opts, call)
	}
	if err != nil {
		return 0, err
	}
	c.autocommitOff = true
	n, err := c.loadFitting(ctx, contained, rows, opts, call)
	failed, end := cmp.Or(err, contained.err), c.cn.Commit
	if failed != nil {
		end = c.cn.Rollback
	}
	ended := end(ctx)
	if failed == nil && ended != nil {
		n, err = 0, ended
	}
	if ended == nil {
		ended = c.autocommit(true)
	}
	if c.autocommitOff = ended != nil; c.autocommitOff {
		c.markLost(fmt.Errorf("%w: %w", errTxEndFailed, ended))
	}
	return n, err
}
