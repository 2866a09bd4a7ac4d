//go:build duckdb_arrow

package duckdb

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/testserver/engine"

	capi "github.com/duckdb/duckdb-go-bindings"
)

// statements is SQL text, split. It is closed by its user.
type statements struct {
	conn   capi.Connection
	handle capi.ExtractedStatements
	count  int // at least 1
}

func split(conn capi.Connection, sql string) (statements, error) {
	if strings.ContainsRune(sql, 0) || !utf8.ValidString(sql) {
		return statements{}, errors.New("duckdb error: the statement is not valid UTF-8 text without NUL")
	}
	t := statements{conn: conn}
	t.count = int(capi.ExtractStatements(conn, sql, &t.handle))
	if t.count > 0 {
		return t, nil
	}
	defer t.close()
	if msg := capi.ExtractStatementsError(t.handle); msg != "" {
		return statements{}, statementError(msg)
	}
	return statements{}, errors.New("duckdb error: the statement is empty")
}

func (t *statements) close() { capi.DestroyExtracted(&t.handle) }

func (t *statements) prepare(i int) (*statement, error) {
	st := &statement{conn: t.conn}
	if capi.PrepareExtractedStatement(t.conn, t.handle, capi.IdxT(i), &st.handle) == capi.StateError {
		defer st.close()
		return nil, statementError(capi.PrepareError(st.handle))
	}
	return st, nil
}

// statement is a prepared statement. It is closed by its user, after the
// results of it.
type statement struct {
	conn   capi.Connection
	handle capi.PreparedStatement
}

func (st *statement) close() { capi.DestroyPrepare(&st.handle) }

func (st *statement) kind() capi.StatementType { return capi.PreparedStatementType(st.handle) }

// resultMode tells when rows are computed.
type resultMode bool

const (
	materialised resultMode = false // all of them before start returns
	streaming    resultMode = true  // while they are read
)

// start runs the statement with the parameters that are bound.
func (st *statement) start(mode resultMode) (*result, error) {
	pend := capi.PendingPrepared
	if mode == streaming {
		pend = capi.PendingPreparedStreaming
	}
	var pending capi.PendingResult
	defer capi.DestroyPending(&pending)
	if pend(st.handle, &pending) == capi.StateError {
		return nil, statementError(capi.PendingError(pending))
	}
	res := &result{}
	if capi.ExecutePending(pending, &res.handle) == capi.StateError {
		defer res.close()
		return nil, statementError(capi.ResultError(&res.handle))
	}
	return res, nil
}

// describe tells the statement's columns and parameters. DuckDB cannot tell
// the columns where they depend on a parameter of unknown type.
func (st *statement) describe() (engine.Description, error) {
	d := engine.Description{Update: st.isUpdate()}
	var err error
	if d.Params, err = st.paramSchema(); err != nil {
		return d, err
	}
	if d.Update {
		d.Rows = arrow.NewSchema(nil, nil)
		return d, nil
	}
	n := capi.PreparedStatementColumnCount(st.handle)
	names, types := make([]string, n), make([]capi.LogicalType, n)
	defer destroyTypes(types)
	for i := range n {
		names[i] = capi.PreparedStatementColumnName(st.handle, i)
		types[i] = capi.PreparedStatementColumnLogicalType(st.handle, i)
		if unknownType(types[i]) {
			return d, nil
		}
	}
	d.Rows, err = arrowSchema(st.conn, names, types)
	return d, err
}

// changesRows reports whether the statement is one of those that count what they change.
func (st *statement) changesRows() bool {
	switch st.kind() {
	case capi.StatementTypeInsert, capi.StatementTypeUpdate, capi.StatementTypeDelete, capi.StatementTypeMergeInto:
		return true
	default:
		return false
	}
}

// isUpdate reports whether the statement is run for its effect and has no rows.
// DuckDB describes the count of an INSERT as a column, so it is told from the
// columns of a RETURNING by what it looks like.
func (st *statement) isUpdate() bool {
	if st.changesRows() {
		return capi.PreparedStatementColumnCount(st.handle) == 1 &&
			capi.PreparedStatementColumnType(st.handle, 0) == capi.TypeBigInt &&
			capi.PreparedStatementColumnName(st.handle, 0) == "Count"
	}
	switch st.kind() {
	case capi.StatementTypeSelect, capi.StatementTypeExplain, capi.StatementTypePragma, capi.StatementTypeCall,
		capi.StatementTypeExecute, capi.StatementTypeRelation, capi.StatementTypeLogicalPlan:
		return false
	default:
		return true
	}
}

// paramSchema has one field per parameter, named as in the text: "1" for the
// first ?. The type of a parameter that takes any is null.
func (st *statement) paramSchema() (*arrow.Schema, error) {
	n := capi.NParams(st.handle)
	fields := make([]arrow.Field, n)
	for i := range n {
		fields[i] = arrow.Field{Name: capi.ParameterName(st.handle, i+1), Type: arrow.Null, Nullable: true}
		types := []capi.LogicalType{capi.ParamLogicalType(st.handle, i+1)}
		if !unknownType(types[0]) {
			schema, err := arrowSchema(st.conn, []string{fields[i].Name}, types)
			if err != nil {
				destroyTypes(types)
				return nil, fmt.Errorf("parameter %s: %w", fields[i].Name, err)
			}
			fields[i].Type = schema.Field(0).Type
		}
		destroyTypes(types)
	}
	return arrow.NewSchema(fields, nil), nil
}

func unknownType(t capi.LogicalType) bool {
	return t.Ptr == nil || capi.GetTypeId(t) == capi.TypeInvalid
}

func destroyTypes(types []capi.LogicalType) {
	for i := range types {
		capi.DestroyLogicalType(&types[i])
	}
}

// arrowSchema is how DuckDB sends these columns now: settings of the session,
// such as its time zone, are part of it.
func arrowSchema(conn capi.Connection, names []string, types []capi.LogicalType) (*arrow.Schema, error) {
	var opts capi.ArrowOptions
	capi.ConnectionGetArrowOptions(conn, &opts)
	defer capi.DestroyArrowOptions(&opts)
	schema, data := capi.NewArrowSchema(opts, types, names)
	return schema, errorOf(data)
}

// errorOf makes an error of DuckDB's error data, which it frees.
func errorOf(data capi.ErrorData) error {
	defer capi.DestroyErrorData(&data)
	if !capi.ErrorDataHasError(data) {
		return nil
	}
	return statementError(capi.ErrorDataMessage(data))
}
