// Package adbcpool joins the pool and ADBC.
package adbcpool
