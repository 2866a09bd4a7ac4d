// Package conformance runs backend/backendtest on every backend with every
// real server that can be had in Go, in one run: the table is in matrix_test.go.
//
// Backends: native (package flightconn), ADBC's Flight SQL driver on the pool's
// transports (adbcconn.Driver), and that driver as any foreign one
// (adbcconn.Foreign). Servers: DuckDB behind package testserver, arrow-go's
// SQLite example, and ADBC's own test server, which is a program of its own.
//
// TestProveDifferential runs random SQL programs through the pool and through
// the clients that people would use without it, and compares what they get. The
// files of it begin with diff.
//
// It is a module of its own since nobody else should compile DuckDB.
package conformance
