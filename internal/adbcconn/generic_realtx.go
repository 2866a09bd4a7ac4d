package adbcconn

import (
	"context"
	"errors"

	"github.com/apache/arrow-adbc/go/adbc"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// Drivers tell of transactions what is not so. DuckDB's begins none where one is open, and says that it has: one is, of its own, behind a result
// whose end was not fetched, and what came next would be stored statement by statement. PostgreSQL's takes the answer to the COMMIT of a transaction
// that was aborted, which is ROLLBACK, for success, as DuckDB's would.
//
// INVARIANT: what is told as begun has begun, and what is told as committed is stored.

// endLeftReads ends the transaction in which DuckDB's driver has left a result: the next statement does. The caller holds driverLock.
func (c *GenericConn) endLeftReads(ctx context.Context) error {
	if !c.isDuckDB() {
		return nil
	}
	return c.askNothing(ctx)
}

// checkGoesOn asks, before a COMMIT, whether the transaction is one still, where something in it has failed: not all that fails there, by a
// driver's word, is known to have aborted it.
func (t *driverCall) checkGoesOn() error {
	c := t.conn
	if !c.failedInTx.Load() || !c.isPostgreSQL() && !c.isDuckDB() {
		return nil
	}
	err := doInDriver(t, backend.StageProbe, c.askNothing)
	var e *backend.Error
	if errors.As(err, &e) {
		e.Unsent = true // the commit was not
	}
	return err
}

// askNothing runs a query without meaning to its end. The caller holds driverLock.
func (c *GenericConn) askNothing(ctx context.Context) error {
	_, err := c.textRows(ctx, "SELECT '', ''")
	return err
}

// describeParams asks the driver what a statement's parameters are; where it does not tell they are not known. PostgreSQL's asks the server, whose
// refusal, also of a text which would be right once the types are given, aborts a transaction that has begun there: it is one of the statement then.
func (p *genericPrepared) describeParams(ctx context.Context, stmt adbc.Statement) error {
	schema, err := stmt.GetParameterSchema()
	if err == nil {
		p.params = schema
		return nil
	}
	if e, ok := adbcError(err); ok && p.conn.autocommitOff && p.conn.isPostgreSQL() && faultOf(e) != backend.FaultUnsupported && p.conn.askNothing(ctx) != nil {
		return err
	}
	return nil
}

// runForEffect executes a statement that was asked for its effect. DuckDB's driver would compute the beginning of a read alone. The caller holds driverLock.
func (c *GenericConn) runForEffect(ctx context.Context, stmt adbc.Statement, sql string) (int64, error) {
	if !c.isDuckDB() || !readsForEffect(sql) {
		return stmt.ExecuteUpdate(ctx)
	}
	reader, _, err := stmt.ExecuteQuery(ctx)
	if err != nil {
		return 0, err
	}
	defer reader.Release()
	for {
		if more, err := hasNext(ctx, reader); !more {
			return -1, err
		}
	}
}

// readsForEffect reports whether the text is a query, be it one that changes something within.
func readsForEffect(sql string) bool {
	script := sqlscan.Parse(sql)
	return script.Rows() == sqlscan.RowsSome && (script.ReadOnly() || script.ChangesInQuery())
}
