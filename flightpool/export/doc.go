// Package export writes a result as CSV, lines of JSON, an Arrow IPC stream or a Parquet
// file, a batch at a time, so that it may be larger than the memory:
//
//	rows, err := pool.Query(ctx, "SELECT * FROM flights")
//	if err != nil {
//		return err
//	}
//	defer rows.Release()
//	n, err := export.Write(file, rows, export.Parquet)
//
// It takes any array.RecordReader. It is a module of its own, since Parquet needs
// libraries that nothing else here does. What differs from arrow-go's own writers: its
// Parquet gives rows the values of others behind structs that are NULL and in slices of
// lists of fixed size, refuses NULL lists that have items, as those of fixed size always do,
// fails on a batch whose lists have no item of a dictionary, and lacks the views that DataFusion's
// servers send for texts, which are written as texts here. It takes other texts of a dictionary that
// is a slice. Its statistics leave out the empty text of dictionaries, and half floats before a NaN: there
// are none of those here. Its Arrow leaves out a dictionary that is about
// the one before, floats to within 0.00001. Its CSV has NULL and the text NULL alike; its JSON sorts the
// columns by name, and leaves out zeros at the end of decimals.
//
// # Forms
//
// CSV is RFC 4180's with a header: NULL is an empty field, an empty text is "", nested
// values are as in JSON. Lines end with a line feed. In a result of one column NULL is an empty
// line, which many readers pass over, and miss the row.
//
// JSON has an object for each row, on its line, with the columns in their order; a name
// that comes again gets #2, #3 and so on added. Decimals are strings, with all their
// digits, as are times; binary values are base64. Bytes of a text that are no UTF-8, for
// which there is no JSON, are escaped as in Go's source (\xff), which readers refuse.
//
// Arrow is the IPC stream. A dictionary whose values are dictionaries is refused. After an error it has no end, which not every reader notices
// (arrow-go's does not): go by the error.
//
// Parquet is compressed by Snappy. Rows are gathered to row groups of about 16 MiB of
// Arrow data, which is what is kept in memory. Without an error the file is whole; after
// one it has no footer, and nobody takes it for one. Times of seconds are milliseconds
// there, and lists of fixed size are lists. What Parquet, or arrow-go's writer of it, lacks is an error: unions, intervals,
// durations, negative scales, results and structs without columns, dates with a time of day or beyond 32 bits
// of days, a NULL where the schema has none, columns that are run-end encoded, views of lists, and
// dictionaries of nested values, of times in seconds or with a NULL among their values.
package export
