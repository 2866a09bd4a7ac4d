package adbcconn

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/backend"
)

// loadByWayOfTemp loads rows with DuckDB's own driver: into a temporary table, and from there with a statement. By itself that driver
// appends columns one after the other, whatever their names, to a table of the schema main; tells rows as stored that DuckDB has refused at the
// end; and stores those before which its reader has failed. The caller holds driverLock.
//
// INVARIANT: the table has all rows, each value in the column of its name, or none.
func (c *GenericConn) loadByWayOfTemp(ctx context.Context, contained *containedRows, opts backend.IngestOptions, call backend.Call) (n int64, err error) {
	temp := backend.IngestOptions{Table: "flightpool_" + rand.Text(), Mode: backend.IngestCreate, Temporary: true, Options: opts.Options}
	source := `temp."` + temp.Table + `"`
	defer func() { // in a transaction that has failed it is gone
		if dropped := c.runText(context.WithoutCancel(ctx), "DROP TABLE IF EXISTS "+source); err == nil {
			err = dropped
		}
	}()
	if _, err := c.loadDirectly(ctx, contained, contained, temp, call); err != nil || contained.err != nil {
		return 0, cmp.Or(contained.err, err)
	}
	counted, err := c.textRows(ctx, "SELECT count(*)::VARCHAR, '' FROM "+source)
	if err != nil {
		return 0, err
	}
	if counted[0][0] != strconv.FormatInt(contained.rows, 10) {
		return 0, adbc.Error{Code: adbc.StatusInternal, Msg: fmt.Sprintf("the driver has taken %s of %d rows", counted[0][0], contained.rows)}
	}
	sql, err := c.insertFrom(ctx, source, contained.Schema(), opts)
	if err != nil {
		return 0, err
	}
	return contained.rows, c.runText(ctx, sql)
}

// insertFrom is the statement that stores the rows of another table.
func (c *GenericConn) insertFrom(ctx context.Context, source string, rows *arrow.Schema, opts backend.IngestOptions) (string, error) {
	name := tableName{table: opts.Table}
	if opts.Catalog != "" {
		name.catalog = &opts.Catalog
	}
	if opts.Schema != "" {
		name.schema = &opts.Schema
	}
	create, target := "CREATE TABLE ", name.quoted()
	if opts.Temporary {
		create, target = "CREATE TEMP TABLE ", "temp."+tableName{table: opts.Table}.quoted()
	}
	switch opts.Mode {
	case backend.IngestCreate:
		return create + target + " AS FROM " + source, nil
	case backend.IngestReplace:
		return strings.Replace(create, "CREATE", "CREATE OR REPLACE", 1) + target + " AS FROM " + source, nil
	case backend.IngestCreateAppend:
		// A statement that makes the table unless it is there would leave it where its rows are refused.
		if there, err := c.textRows(ctx, "SELECT table_name, '' FROM duckdb_tables() WHERE lower(table_name) = lower("+literal(opts.Table)+") AND "+where(opts)); err != nil || len(there) == 0 {
			return create + target + " AS FROM " + source, err
		}
	default: // append
	}
	table, err := c.textRows(ctx, "SELECT column_name, column_type FROM (DESCRIBE "+target+")")
	return "INSERT INTO " + target + " BY NAME SELECT *" + clocksOf(rows, table) + " FROM " + source, err
}

// clocksOf has instants go by the clock of UTC into columns without a zone, as the driver appends them: the statement would have
// them by that of the session's zone.
func clocksOf(rows *arrow.Schema, table [][2]string) string {
	var clocks []string
	for _, f := range rows.Fields() {
		t, isTime := f.Type.(*arrow.TimestampType)
		for _, column := range table {
			if isTime && t.TimeZone != "" && strings.EqualFold(column[0], f.Name) && isZoneless(column[1]) {
				name := tableName{table: f.Name}.quoted()
				clocks = append(clocks, "make_timestamp(epoch_us("+name+")) AS "+name)
			}
		}
	}
	if len(clocks) == 0 {
		return ""
	}
	return " REPLACE (" + strings.Join(clocks, ", ") + ")"
}

func isZoneless(kind string) bool {
	return kind == "DATE" || kind == "TIME" || strings.HasPrefix(kind, "TIMESTAMP") && !strings.HasSuffix(kind, "ZONE")
}

// where is the condition on duckdb_tables() for the place of a table.
func where(opts backend.IngestOptions) string {
	if opts.Temporary {
		return "temporary"
	}
	database, schema := "current_database()", "current_schema()"
	if opts.Catalog != "" {
		database, schema = literal(opts.Catalog), "'main'"
	}
	if opts.Schema != "" {
		schema = literal(opts.Schema)
	}
	return "lower(database_name) = lower(" + database + ") AND lower(schema_name) = lower(" + schema + ")"
}
