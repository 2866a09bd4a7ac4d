// Package rowscan turns Arrow batches into Go values: rows into structs (Rows),
// rows into maps (Maps), one value into the nearest Go type (Value, Column),
// and exact decimals (Decimal). It knows nothing of servers: it reads any Result.
//
// A column is planned once a result (rows.go, fields.go, set.go, set_nested.go).
// Each row then reads its values (value.go) through their encodings:
// dictionaries, run-ends, unions and extensions.
//
// # How a value gets to its field
//
// Arrow says the type of a column once, and a batch holds it column by column;
// Go wants rows. So the work is in two parts. The plan (rowPlan) matches
// columns and fields by name and makes a setter for each Go type, from the type
// alone: which columns fit is not judged there, since a union or an any may
// hold another type in each row. Then, for each row, valueOf undoes the
// encodings of a column and gives a value of some kind, and the setter takes it
// or says why not. Where column and field are of common types, a batch's values
// are copied without either (directCopy), which leaves NULL and what does not
// fit to them. A setter therefore knows Go types and kinds, and, but for
// setDuration, no Arrow arrays; value.go knows Arrow arrays and no Go types.
//
// A value arrives exactly or not at all. What would have to be rounded, cut off
// or guessed is an error that names row and column, because a wrong number that
// looks right is found by nobody.
//
// # What is relied on
//
// Batches must be valid: offsets, indices and type codes are not checked here.
// Those that come over Flight are, before they come here (internal/flightconn,
// Validator); batches of other drivers are taken as they are, and Arrow panics
// on what is wrong in them. Nothing here starts a goroutine, takes a lock or
// keeps a batch.
//
// # Files
//
//	rows.go, fields.go       plans and the loop over rows; which fields a struct has
//	set.go, set_duration.go, set_nested.go, set_text.go   values into Go types
//	direct.go, texts.go      values of common types, without reflection; texts
//	value.go, zone.go        what a value is, of any array; zones of timestamps
//	column.go                values of one column as any, for many rows
//	govalue.go, text.go      values as any, and errors; values as text and JSON
//	maps.go                  rows without a type
//	collect.go               all rows, the first row, and the values of the first row
//	decimal.go, decimal_encoding.go   exact numbers
package rowscan
