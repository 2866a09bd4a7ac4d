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
	if err := checkNames(contained.Schema()); err != nil {
		return 0, err
	}
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
		name := tableName{table: f.Name}.quoted()
		clock := clockOf(name, f.Type, 0)
		for _, column := range table {
			if clock != "" && strings.EqualFold(column[0], f.Name) && isZoneless(column[1]) {
				clocks = append(clocks, clock+" AS "+name)
			}
		}
	}
	if len(clocks) == 0 {
		return ""
	}
	return " REPLACE (" + strings.Join(clocks, ", ") + ")"
}

// clockOf is UTC's clock at the instants of a value, which may be in lists; empty for other types.
func clockOf(value string, t arrow.DataType, depth int) string {
	switch t := t.(type) {
	case *arrow.DictionaryType:
		return clockOf(value, t.ValueType, depth)
	case *arrow.RunEndEncodedType:
		return clockOf(value, t.Encoded(), depth)
	case arrow.ExtensionType:
		return clockOf(value, t.StorageType(), depth)
	case *arrow.MapType:
		return ""
	case arrow.ListLikeType:
		each := "each" + strconv.Itoa(depth)
		if clock := clockOf(each, t.Elem(), depth+1); clock != "" {
			return "[" + clock + " FOR " + each + " IN " + value + "]"
		}
	case *arrow.TimestampType:
		if t.TimeZone != "" {
			return "make_timestamp(epoch_us(" + value + "))"
		}
	}
	return ""
}

func isZoneless(kind string) bool {
	kind, _, _ = strings.Cut(kind, "[") // of lists
	return kind == "DATE" || kind == "TIME" || strings.HasPrefix(kind, "TIMESTAMP") && !strings.HasSuffix(kind, "ZONE")
}

// checkNames refuses rows with two columns of one name, of which the driver would call one by another: a column of the table may have that.
func checkNames(rows *arrow.Schema) error {
	seen := map[string]bool{}
	for _, f := range rows.Fields() {
		name := strings.ToLower(f.Name)
		if seen[name] {
			return &misplacedError{fmt.Sprintf("the rows have two columns %q, which are one to DuckDB", f.Name)}
		}
		seen[name] = true
	}
	return nil
}

// checkIntervals refuses Arrow's intervals of days and milliseconds, which DuckDB takes for one number of milliseconds.
func checkIntervals(fields []arrow.Field) error {
	for _, f := range fields {
		err := checkInterval(f.Type)
		if err != nil {
			return err
		}
	}
	return nil
}

func checkInterval(t arrow.DataType) error {
	switch t := t.(type) {
	case *arrow.DayTimeIntervalType:
		return fmt.Errorf("%v, of which DuckDB's driver would make another length: month_day_nano_interval is taken", t)
	case *arrow.DictionaryType:
		return checkInterval(t.ValueType)
	case arrow.ExtensionType:
		return checkInterval(t.StorageType())
	case arrow.NestedType:
		return checkIntervals(t.Fields())
	}
	return nil
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
