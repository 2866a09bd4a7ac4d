//go:build duckdb_arrow

package duckdb

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	capi "github.com/duckdb/duckdb-go-bindings"
)

// SQLInfo is what DuckDB says of itself and its SQL.
func (e *Engine) SQLInfo() map[flightsql.SqlInfo]any {
	return map[flightsql.SqlInfo]any{
		flightsql.SqlInfoFlightSqlServerName:         "DuckDB",
		flightsql.SqlInfoFlightSqlServerVersion:      capi.LibraryVersion(),
		flightsql.SqlInfoFlightSqlServerArrowVersion: arrow.PkgVersion,
		flightsql.SqlInfoFlightSqlServerReadOnly:     false,

		flightsql.SqlInfoDDLCatalog:               true,
		flightsql.SqlInfoDDLSchema:                true,
		flightsql.SqlInfoDDLTable:                 true,
		flightsql.SqlInfoIdentifierQuoteChar:      `"`,
		flightsql.SqlInfoQuotedIdentifierCase:     int64(flightsql.SqlCaseSensitivityCaseInsensitive),
		flightsql.SqlInfoIdentifierCase:           int64(flightsql.SqlCaseSensitivityCaseInsensitive),
		flightsql.SqlInfoTransactionsSupported:    true,
		flightsql.SqlInfoSelectForUpdateSupported: false,
		flightsql.SqlInfoSupportsColumnAliasing:   true,
		flightsql.SqlInfoSchemaTerm:               "schema",
		flightsql.SqlInfoCatalogTerm:              "database",
	}
}
