//go:build duckdb_arrow

package conformance

import (
	"context"
	"fmt"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"

	"github.com/flightpool/flightpool/backend"
)

// ingestMode is what a bulk load does with its table, as each client says it.
type ingestMode struct {
	flag string
	pool backend.IngestMode
	bare *flightsql.TableDefinitionOptions
	adbc string
}

var ingestModes = []*ingestMode{
	{"append", backend.IngestAppend, &flightsql.TableDefinitionOptions{
		IfNotExist: flightsql.TableDefinitionOptionsTableNotExistOptionFail, IfExists: flightsql.TableDefinitionOptionsTableExistsOptionAppend,
	}, adbc.OptionValueIngestModeAppend},
	{"create", backend.IngestCreate, &flightsql.TableDefinitionOptions{
		IfNotExist: flightsql.TableDefinitionOptionsTableNotExistOptionCreate, IfExists: flightsql.TableDefinitionOptionsTableExistsOptionFail,
	}, adbc.OptionValueIngestModeCreate},
	{"replace", backend.IngestReplace, &flightsql.TableDefinitionOptions{
		IfNotExist: flightsql.TableDefinitionOptionsTableNotExistOptionCreate, IfExists: flightsql.TableDefinitionOptionsTableExistsOptionReplace,
	}, adbc.OptionValueIngestModeReplace},
	{"create-append", backend.IngestCreateAppend, &flightsql.TableDefinitionOptions{
		IfNotExist: flightsql.TableDefinitionOptionsTableNotExistOptionCreate, IfExists: flightsql.TableDefinitionOptionsTableExistsOptionAppend,
	}, adbc.OptionValueIngestModeCreateAppend},
}

func ingestModeOf(s step) (*ingestMode, error) {
	for _, m := range ingestModes {
		if s.is(m.flag) {
			return m, nil
		}
	}
	return nil, fmt.Errorf("no mode of a bulk load: %s", s)
}

// ingest loads rows into a table, outside of transactions: ADBC's driver names
// none in a bulk load.
func (g *generator) ingest() {
	if g.inTx || g.temp {
		g.insert()
		return
	}
	mode, name, columns := pick(g, ingestModes).flag, pick(g, tableNames[:3]), []column{}
	t := g.tables[name]
	if t != nil && mode != "replace" {
		columns = append(columns, t.columns...)
		if g.chance(20) {
			g.Shuffle(len(columns), func(i, j int) { columns[i], columns[j] = columns[j], columns[i] })
			columns = columns[:1+g.IntN(len(columns))]
		}
	} else {
		for i := range 1 + g.IntN(4) {
			columns = append(columns, column{fmt.Sprintf("c%d", i), pick(g, sqlKinds)})
		}
	}
	with := g.paramsFor(columns, g.IntN(5))
	for _, c := range columns {
		with.Columns = append(with.Columns, c.name)
	}
	how := []string{mode}
	if g.chance(40) {
		how = append(how, stateless)
	}
	g.add(step{verb: "ingest", how: how, name: name, with: with})
	if t == nil && mode != "append" || mode == "replace" {
		g.tables[name] = &table{name: name, columns: columns}
	}
}

func reader(rows arrow.RecordBatch) (array.RecordReader, error) {
	return array.NewRecordReader(rows.Schema(), []arrow.RecordBatch{rows})
}

func (c *pooled) ingest(ctx context.Context, s step, m *ingestMode, rows array.RecordReader) (int64, error) {
	load := c.Ingest
	if s.is(stateless) {
		load = c.pool.Ingest
	}
	return load(ctx, s.name, rows, backend.IngestOptions{Mode: m.pool})
}

func (b *bare) ingest(ctx context.Context, s step, m *ingestMode, rows array.RecordReader) (int64, error) {
	return b.c.ExecuteIngest(ctx, rows, &flightsql.ExecuteIngestOpts{Table: s.name, TableDefinitionOptions: m.bare})
}

func (d *driver) ingest(ctx context.Context, s step, m *ingestMode, rows array.RecordReader) (n int64, err error) {
	st, err := d.conn.NewStatement()
	if err != nil {
		return 0, err
	}
	defer func() {
		if closing := st.Close(); err == nil {
			err = closing
		}
	}()
	if err := st.SetOption(adbc.OptionKeyIngestTargetTable, s.name); err != nil {
		return 0, err
	}
	if err := st.SetOption(adbc.OptionKeyIngestMode, m.adbc); err != nil {
		return 0, err
	}
	rows.Retain() // BindStream takes a reference over
	if err := st.BindStream(ctx, rows); err != nil {
		return 0, err
	}
	return st.ExecuteUpdate(ctx)
}
