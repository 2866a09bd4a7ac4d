// Package rowscan turns Arrow batches into Go values: rows into structs (Rows),
// rows into maps (Maps), one value into the nearest Go type (Value), and exact
// decimals (Decimal). It knows nothing of servers: it reads any Result.
//
// A column is planned once a result (rows.go, fields.go, set.go, set_nested.go).
// Each row then reads its values (value.go) through their encodings:
// dictionaries, run-ends, unions and extensions.
package rowscan
