// Package flightconn is the native backend: session.Conn over Arrow Flight SQL.
package flightconn
