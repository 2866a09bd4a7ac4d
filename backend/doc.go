// Package backend is the interface between sessions and what speaks to a server: one
// physical connection with its calls, results and prepared statements (Conn),
// what a backend may offer beside them (optional.go), and the errors that every
// layer above passes on. Package session runs its transactions and results on
// it; internal/flightconn is Flight SQL's implementation, internal/adbcconn that
// of ADBC drivers. Package backendtest is its conformance suite.
package backend
