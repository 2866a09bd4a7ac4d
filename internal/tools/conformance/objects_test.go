//go:build duckdb_arrow

package conformance

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool/adbcpool"
)

// object is what GetObjects tells of a table.
type object struct {
	Name        string             `json:"table_name"`
	Columns     []objectColumn     `json:"table_columns"`
	Constraints []objectConstraint `json:"table_constraints"`
}

type objectColumn struct {
	Name     string `json:"column_name"`
	Position int    `json:"ordinal_position"`
	Type     *int   `json:"xdbc_data_type"`
	Size     *int   `json:"xdbc_column_size"`
	Digits   *int   `json:"xdbc_decimal_digits"`
	Nullable string `json:"xdbc_is_nullable"`
}

type objectConstraint struct {
	Kind    string            `json:"constraint_type"`
	Columns []string          `json:"constraint_column_names"`
	Usage   []objectReference `json:"constraint_column_usage"`
}

type objectReference struct {
	Table  string `json:"fk_table"`
	Column string `json:"fk_column_name"`
}

// objectsOf are the tables whose names match a pattern.
func objectsOf(t *testing.T, cn adbc.Connection, table string) (out []object) {
	t.Helper()
	rows, err := cn.GetObjects(t.Context(), adbc.ObjectDepthAll, nil, nil, &table, nil, nil)
	require.NoError(t, err)
	defer rows.Release()
	require.True(t, rows.Next())
	var text bytes.Buffer
	require.NoError(t, array.RecordToJSON(rows.RecordBatch(), &text))
	for d := json.NewDecoder(&text); d.More(); {
		var catalog struct {
			Schemas []struct {
				Tables []object `json:"db_schema_tables"`
			} `json:"catalog_db_schemas"`
		}
		require.NoError(t, d.Decode(&catalog))
		for _, s := range catalog.Schemas {
			out = append(out, s.Tables...)
		}
	}
	return out
}

// onServer runs test over a connection of each backend.
func onServer(t *testing.T, server string, test func(t *testing.T, cn adbc.Connection, tested string)) {
	for _, tested := range []string{"native", "open", "new"} {
		t.Run(server+"/"+tested, func(t *testing.T) {
			q := &quirks{server: server, client: tested}
			q.SetupDriver(t)
			cn, err := q.db.Open(t.Context())
			require.NoError(t, err)
			defer func() { require.NoError(t, cn.Close()) }()
			test(t, cn, tested)
		})
	}
}

func TestObjectsTellKeysAndTypes(t *testing.T) {
	number := func(n int) *int { return &n }
	onServer(t, "DuckDB", func(t *testing.T, cn adbc.Connection, tested string) {
		require.NoError(t, runADBC(cn, "CREATE TABLE keyed (a BIGINT, b DECIMAL(20,3), c VARCHAR, d TIMESTAMP, PRIMARY KEY (c, a))"))
		got := objectsOf(t, cn, "keyed")
		require.Len(t, got, 1)
		want := []objectColumn{
			{"a", 1, number(-5), nil, nil, "YES"}, {"b", 2, number(3), number(20), number(3), "YES"},
			{"c", 3, number(12), nil, nil, "YES"}, {"d", 4, number(93), nil, nil, "YES"},
		}
		require.Equal(t, want, got[0].Columns)
		if tested == "new" { // ADBC's driver tells no keys
			require.Nil(t, got[0].Constraints)
			return
		}
		require.Equal(t, []objectConstraint{{Kind: "PRIMARY KEY", Columns: []string{"c", "a"}}}, got[0].Constraints)
		require.NoError(t, cn.(adbc.PostInitOptions).SetOption(adbcpool.OptionConstraints, "false"))
		require.Nil(t, objectsOf(t, cn, "keyed")[0].Constraints)
	})
	onServer(t, "SQLite", func(t *testing.T, cn adbc.Connection, tested string) {
		if tested == "new" {
			return // tells none
		}
		got := objectsOf(t, cn, "intTable")
		require.Len(t, got, 1)
		require.Equal(t, []objectConstraint{
			{Kind: "PRIMARY KEY", Columns: []string{"id"}},
			{Kind: "FOREIGN KEY", Columns: []string{"foreignId"}, Usage: []objectReference{{"foreignTable", "id"}}},
		}, got[0].Constraints)
	})
}

// TestTheSchemaOfATableIsThatOfItsNameAlone has tables whose names match each
// other's as LIKE patterns.
func TestTheSchemaOfATableIsThatOfItsNameAlone(t *testing.T) {
	onServer(t, "DuckDB", func(t *testing.T, cn adbc.Connection, _ string) {
		for _, sql := range []string{
			"CREATE SCHEMA aXb", "CREATE SCHEMA a_b", `CREATE SCHEMA "a%"`, "CREATE TABLE aXb.t (wrong BIGINT)", "CREATE TABLE a_b.t (good BIGINT)",
			`CREATE TABLE "a%".t (percent BIGINT)`, `CREATE TABLE a_b."x\y" (slash BIGINT)`, `CREATE TABLE a_b."x_y" (line BIGINT)`,
			"CREATE TABLE t (own BIGINT)",
		} {
			require.NoError(t, runADBC(cn, sql))
		}
		for _, test := range []struct{ schema, table, column string }{
			{"a_b", "t", "good"}, {"aXb", "t", "wrong"}, {"a%", "t", "percent"}, {"a_b", `x\y`, "slash"}, {"a_b", "x_y", "line"}, {"main", "t", "own"},
		} {
			schema, err := cn.GetTableSchema(t.Context(), nil, &test.schema, test.table)
			require.NoError(t, err)
			require.Equal(t, test.column, schema.Field(0).Name, "%s.%s", test.schema, test.table)
		}
		var e adbc.Error
		none := "a"
		_, err := cn.GetTableSchema(t.Context(), nil, &none, "t")
		require.ErrorAs(t, err, &e)
		require.Equal(t, adbc.StatusNotFound, e.Code)

		schema, err := cn.GetTableSchema(t.Context(), nil, nil, "t") // in four schemas
		if err == nil {
			require.Equal(t, "own", schema.Field(0).Name)
		} else { // the session does not tell its own
			require.ErrorAs(t, err, &e)
			require.Equal(t, adbc.StatusInvalidArgument, e.Code)
		}
	})
}

// TestBatchesOutliveTheirReader keeps every batch beyond the end of all else.
func TestBatchesOutliveTheirReader(t *testing.T) {
	onServer(t, "DuckDB", func(t *testing.T, cn adbc.Connection, _ string) {
		st, err := cn.NewStatement()
		require.NoError(t, err)
		require.NoError(t, st.SetSqlQuery("SELECT range AS r FROM range(20000)"))
		rows, _, err := st.ExecuteQuery(t.Context())
		require.NoError(t, err)
		require.NoError(t, st.Close())
		var kept []arrow.RecordBatch
		for rows.Next() {
			b := rows.RecordBatch()
			b.Retain()
			kept = append(kept, b)
		}
		require.NoError(t, rows.Err())
		rows.Release()
		n := int64(0)
		for _, b := range kept {
			for i := range int(b.NumRows()) {
				require.Equal(t, n, b.Column(0).(*array.Int64).Value(i))
				n++
			}
			b.Release()
		}
		require.EqualValues(t, 20000, n)
	})
}
