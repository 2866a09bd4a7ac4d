// Package sqlscan tells what a SQL text does, as far as a connection pool must
// know: which verb leads each statement, whether it returns rows, whether it
// only reads, and what it leaves behind in the session.
//
// It is a tokenizer with a little grammar on top, not a parser: comments
// (nested ones too), string literals of every dialect, quoted identifiers,
// dollar quotes and common table expressions are understood, so that no word
// inside them is taken for a verb. Where a text cannot be judged the answer is
// the careful one: it is no read, and it leaves the session dirty.
package sqlscan
