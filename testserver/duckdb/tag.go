//go:build !duckdb_arrow

package duckdb

// DuckDB's Arrow interface is behind a build tag of its bindings. Without the
// tag nothing here can work, so say what is missing instead of failing later.
var _ = build_with_GOFLAGS_tags_duckdb_arrow
