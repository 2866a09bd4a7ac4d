package testserver

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/flightpool/flightpool/testserver/engine"
	"github.com/flightpool/flightpool/testserver/internal/sqltext"
)

func (h *handlers) DoPutCommandStatementUpdate(ctx context.Context, u flightsql.StatementUpdate) (int64, error) {
	st := Statement{SQL: u.GetQuery(), Kind: KindUpdate, Tx: string(u.GetTransactionId())}
	return h.unpreparedUpdate(ctx, st)
}

// unpreparedUpdate runs a statement that is not prepared.
func (h *handlers) unpreparedUpdate(ctx context.Context, st Statement) (int64, error) {
	n, err := h.update(ctx, st, nil)
	if h.srv.profile.ZeroCounts {
		n = 0
	}
	return n, err
}

// commandResult answers DoGet for a command: it tells the count and drops the rows.
func (h *handlers) commandResult(ctx context.Context, n int64, err error) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	if err != nil {
		return nil, nil, err
	}
	h.setAffectedHeader(ctx, n)
	return arrow.NewSchema(nil, nil), h.send(ctx, nil), nil
}

// update runs a statement once for each row of params, which it owns.
func (h *handlers) update(ctx context.Context, st Statement, params []arrow.RecordBatch) (int64, error) {
	return h.updateWith(ctx, st, params, h.updateAll)
}

// updateWith is update by run.
func (h *handlers) updateWith(ctx context.Context, st Statement, params []arrow.RecordBatch, run updateRunner) (int64, error) {
	c := callOf(ctx)
	if err := h.srv.profile.checkText(st.SQL); err != nil {
		releaseAll(params)
		return 0, err
	}
	if h.srv.profile.ByText && len(sqltext.Statements(st.SQL)) == 0 {
		c.sess.restartTTL()
		releaseAll(params)
		return 0, nil
	}
	turns, owned := h.turnsOf(st.SQL, params)
	works, counts := make([]engineWork, len(turns)), make(chan int64, len(turns))
	for i, part := range turns {
		works[i] = func(ctx context.Context, db engine.Session) error {
			n, err := run(ctx, db, st.SQL, part)
			c.sess.clearSchemaCache(st.SQL)
			if err == nil {
				counts <- n
			}
			return err
		}
	}
	if err := c.sess.runStatement(ctx, c, st, owned, works...); err != nil {
		return 0, err
	}
	var sum int64
	for range turns {
		if n := <-counts; n < 0 || sum < 0 {
			sum = -1
		} else {
			sum += n
		}
	}
	return sum, nil
}

func (h *handlers) updateAll(ctx context.Context, db engine.Session, sql string, params []arrow.RecordBatch) (int64, error) {
	if into, ok := insertionOf(sql); ok && len(params) > 0 && h.srv.profile.AppendTo != "" {
		return h.appendRows(ctx, db, into, params)
	}
	return h.runAll(ctx, db, sql, params)
}

func (h *handlers) DoPutCommandStatementIngest(ctx context.Context, r flightsql.StatementIngest, rows flight.MessageReader) (int64, error) {
	c := callOf(ctx)
	into := engine.IngestTarget{
		Catalog: r.GetCatalog(), Schema: r.GetSchema(), Table: r.GetTable(),
		Temporary: r.GetTemporary(), Options: r.GetOptions(),
	}
	if o := r.GetTableDefinitionOptions(); o != nil {
		into.Create = o.IfNotExist == flightsql.TableDefinitionOptionsTableNotExistOptionCreate
		if o.IfExists == flightsql.TableDefinitionOptionsTableExistsOptionFail {
			into.Exists = engine.IngestFail
		}
		if o.IfExists == flightsql.TableDefinitionOptionsTableExistsOptionReplace {
			into.Exists = engine.IngestReplace
		}
	}
	// The rows arrive on the stream of this very RPC, so that the end of it
	// ends the ingest, whatever the profile says of cancels.
	st := Statement{SQL: "INGEST " + into.Table, Kind: KindIngest, Tx: string(r.GetTransactionId())}
	var stored int64
	err := c.sess.runInTurn(ctx, c, st, func(ctx context.Context, db engine.Session) (err error) {
		stored, err = db.Ingest(ctx, into, rows)
		return err
	})
	return stored, err
}

// insertion is the target of an INSERT.
type insertion struct {
	table   []string // the parts of its name
	columns []string // nil if none are named
}

// insertionOf reads as much of an INSERT as names its target.
func insertionOf(sql string) (insertion, bool) {
	p := &sqltext.Reader{Tokens: sqltext.Split(sql)}
	if !p.Accept("INSERT") {
		return insertion{}, false
	}
	if p.Accept("OR") {
		p.At++ // REPLACE, IGNORE
	}
	p.Expect("INTO")
	into := insertion{table: strings.Split(p.Ident(), ".")}
	if p.Accept("(") {
		for more := true; more; more = p.Accept(",") {
			into.columns = append(into.columns, p.Ident())
		}
		p.Expect(")")
	}
	return into, p.Err == nil
}

// appendRows is what AppendTo makes of an INSERT with parameters. The session
// stays in the catalog of the table. The caller holds engineLock.
func (h *handlers) appendRows(ctx context.Context, db engine.Session, into insertion, params []arrow.RecordBatch) (int64, error) {
	catalog, table := into.table[0], into.table[0]
	if len(into.table) > 1 {
		table = into.table[1]
	} else {
		catalog = h.catalogFor(ctx, db)
	}
	d, err := db.Describe(ctx, fmt.Sprintf("SELECT * FROM %q.%q", catalog, table))
	if err != nil {
		return 0, err
	}
	rows, err := alignColumns(params, d.Rows, into.columns)
	if err != nil {
		return 0, err
	}
	defer rows.Release()
	if _, err := db.Update(ctx, fmt.Sprintf("USE %q", catalog), nil); err != nil {
		return 0, err
	}
	n, err := db.Ingest(ctx, engine.IngestTarget{Catalog: catalog, Schema: engine.HomeSchema, Table: table, Exists: engine.IngestAppend}, rows)
	if errors.Is(err, engine.ErrTxState) {
		err = fmt.Errorf("%w (%w)", err, errNotRepeated)
	}
	return n, err
}

// catalogFor is where a table without a catalog is: where the session is, but
// for the catalog that it begins in.
func (h *handlers) catalogFor(ctx context.Context, db engine.Session) string {
	rows, err := db.Query(ctx, "SELECT current_database()", nil)
	if err != nil {
		return h.srv.profile.AppendTo
	}
	defer rows.Release()
	for rows.Next() {
		if b := rows.RecordBatch(); b.NumRows() > 0 {
			if now := strings.Clone(b.Column(0).ValueStr(0)); now != engine.HomeCatalog {
				return now
			}
		}
	}
	return h.srv.profile.AppendTo
}

// alignColumns gives the columns of params the names of the table's: by position, or
// by their names where the statement names columns and they are no numbers.
func alignColumns(params []arrow.RecordBatch, table *arrow.Schema, columns []string) (array.RecordReader, error) {
	given := params[0].Schema()
	names := make([]string, given.NumFields())
	for i, f := range given.Fields() {
		switch {
		case columns == nil && i < table.NumFields():
			names[i] = table.Field(i).Name
		case columns == nil || len(columns) != given.NumFields():
			return nil, fmt.Errorf("internal error: column count mismatch for INSERT: batch has %d columns", given.NumFields())
		case positional(given):
			names[i] = columns[i]
		case slices.Contains(columns, f.Name):
			names[i] = f.Name
		default:
			return nil, fmt.Errorf("internal error: Column '%s' not found in batch schema", f.Name)
		}
	}
	return renameColumns(params, table, names)
}

// positional reports whether the columns are called 1, 2, … or $1, $2, … or 0, 1, …
func positional(s *arrow.Schema) bool {
	first := -1
	for i, f := range s.Fields() {
		n, err := strconv.Atoi(strings.TrimPrefix(f.Name, "$"))
		if err != nil || i == 0 && n > 1 || i > 0 && n != first+i {
			return false
		}
		if i == 0 {
			first = n
		}
	}
	return true
}

// renameColumns has the columns of the table in their order; those without values are
// NULL.
func renameColumns(params []arrow.RecordBatch, table *arrow.Schema, names []string) (array.RecordReader, error) {
	fields := make([]arrow.Field, table.NumFields())
	from := make([]int, table.NumFields())
	for i, f := range table.Fields() {
		from[i] = slices.Index(names, f.Name)
		fields[i] = arrow.Field{Name: f.Name, Type: f.Type, Nullable: true}
		if from[i] >= 0 {
			fields[i].Type = params[0].Schema().Field(from[i]).Type
		}
	}
	schema := arrow.NewSchema(fields, nil)
	batches := make([]arrow.RecordBatch, len(params))
	defer func() { releaseAll(batches) }()
	for b, p := range params {
		columns := make([]arrow.Array, len(fields))
		for i := range fields {
			if from[i] >= 0 {
				columns[i] = p.Column(from[i])
				columns[i].Retain()
			} else {
				columns[i] = array.MakeArrayOfNull(memory.DefaultAllocator, fields[i].Type, int(p.NumRows()))
			}
		}
		batches[b] = array.NewRecordBatch(schema, columns, p.NumRows())
		for _, c := range columns {
			c.Release()
		}
	}
	return array.NewRecordReader(schema, batches)
}

// inSteps is what DuckDB makes several statements of, in a transaction of their own.
var inSteps = regexp.MustCompile(`(?is)^\s*ALTER\s+TABLE\s.*\sADD\s.*\sDEFAULT\s`)

// runSteps runs the steps of a statement that is prepared, all but their COMMIT, as servers do that prepare by DuckDB's
// clients for Rust or Go.
func (h *handlers) runSteps(ctx context.Context, c *call, parts []string) error {
	if !h.srv.profile.ByText || len(parts) != 1 || !inSteps.MatchString(parts[0]) || c.sess.inEngineTx(ctx) {
		return nil
	}
	for _, step := range []string{"BEGIN", parts[0]} {
		if _, err := h.update(ctx, Statement{SQL: step, Kind: KindUpdate}, nil); err != nil {
			return err
		}
	}
	return nil
}
