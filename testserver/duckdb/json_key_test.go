package duckdb_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/duckdb"
)

// A column may be called as a statement begins that Snowflake's operator of the same signs would run.
func TestAKeyOfJSONThatIsAVerbHasItsRows(t *testing.T) {
	srv, err := duckdb.Start(t.Context(), duckdb.Config{}, testserver.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, srv.Close()) }()
	p, err := flightpool.New(t.Context(), srv.URI(), flightpool.Config{})
	require.NoError(t, err)
	defer func() { _ = p.Close(t.Context()) }()
	for _, sql := range []string{"CREATE TABLE docs (j JSON, comment VARCHAR)", `INSERT INTO docs VALUES ('{"a": "x"}', 'a'), ('{"b": "y"}', 'b')`} {
		_, err := p.Update(t.Context(), sql)
		require.NoError(t, err)
	}
	for _, sql := range []string{
		"SELECT j ->> comment note FROM docs",
		"SELECT * FROM docs WHERE j ->> comment NOTNULL",
		"SELECT j ->> call FROM (SELECT j, comment AS call FROM docs)",
		"SELECT j ->> begin FROM (SELECT j, comment AS begin FROM docs)",
		"SELECT j ->> delete FROM (SELECT j, comment AS delete FROM docs)",
		"SELECT length(j ->> comment) // 2 FROM docs",
	} {
		res, err := p.Query(t.Context(), sql)
		require.NoError(t, err, sql)
		rows := int64(0)
		for res.Next() {
			rows += res.RecordBatch().NumRows()
		}
		require.NoError(t, res.Err(), sql)
		res.Release()
		require.EqualValues(t, 2, rows, sql)
	}
}
