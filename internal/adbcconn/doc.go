// Package adbcconn is the ADBC backend: session.Conn over connections of ADBC
// drivers.
package adbcconn
