// Package engine is the seam between package testserver, which speaks Flight
// SQL, and the database behind it. Package script is one in Go alone, and
// testserver/duckdb a real DuckDB.
package engine
