//go:build duckdb_arrow

package duckdb

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/require"
)

func TestTheOptionsCatalogAndSchemaAreObeyedAndTakenBack(t *testing.T) {
	srv, c := serve(t, Config{})
	_, err := c.ExecuteUpdate(t.Context(), `CREATE SCHEMA "s""2"; ATTACH ':memory:' AS "o""ther"; CREATE SCHEMA "o""ther".s3`)
	require.NoError(t, err)
	set := func(options map[string]any) map[string]*flight.SetSessionOptionsResultError {
		values, err := flight.NewSessionOptionValues(options)
		require.NoError(t, err)
		result, err := c.SetSessionOptions(t.Context(), &flight.SetSessionOptionsRequest{SessionOptions: values})
		require.NoError(t, err)
		return result.GetErrors()
	}
	at := func(catalog, schema string) {
		t.Helper()
		info, err := c.Execute(t.Context(), "SELECT current_database(), current_schema()")
		require.Equal(t, [][]string{{catalog, schema}}, fetch(t, c, info, err))
	}
	require.Empty(t, set(map[string]any{"schema": `s"2`, "mine": int64(1)}))
	at("memory", `s"2`)
	require.Empty(t, set(map[string]any{"schema": "s3", "catalog": `o"ther`}))
	at(`o"ther`, "s3")

	refused := set(map[string]any{"schema": "missing", "mine": "x"})
	require.Len(t, refused, 1)
	require.Equal(t, flight.SetSessionOptionsResultErrorInvalidValue, refused["schema"].GetValue())
	at(`o"ther`, "s3")
	kept, err := c.GetSessionOptions(t.Context(), &flight.GetSessionOptionsRequest{})
	require.NoError(t, err)
	require.Equal(t, "s3", kept.GetSessionOptions()["schema"].GetStringValue(), "what was refused is not kept")
	require.Equal(t, "x", kept.GetSessionOptions()["mine"].GetStringValue())

	require.Empty(t, set(map[string]any{"catalog": int64(1)}), "what is not text names nothing")
	at(`o"ther`, "s3")
	require.Empty(t, set(map[string]any{"schema": nil, "catalog": nil}))
	at("memory", "main")
	require.NoError(t, srv.Ledger().WaitIdle(t.Context()))
}
