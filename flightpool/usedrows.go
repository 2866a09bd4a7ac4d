package flightpool

import (
	"errors"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/internal/usedup"
)

var errRowsUsed = errors.New("its rows were taken by an attempt of the transaction before, which has lost a conflict: make the reader in the function")

// rowsOnce is the reader. Where an attempt of InTx before has taken rows of it, it fails where they are lacking.
func (t *Tx) rowsOnce(rows array.RecordReader) array.RecordReader {
	if t.used != nil {
		if reading := t.used.Before(rows); reading != nil {
			return &onceMore{rows, reading}
		}
	}
	return rows
}

// noteRows takes note of an ingestion.
func (t *Tx) noteRows(rows array.RecordReader, stored int64, err error) {
	var e *Error
	rest := errors.As(err, &e) && e.RowsTaken
	if t.used != nil && (rest || err == nil && stored != 0) {
		t.used.Took(rows, !rest)
	}
}

// onceMore are rows of which an attempt before has taken some, or all.
type onceMore struct {
	array.RecordReader
	reading *usedup.Reading
}

// Next is part of array.RecordReader.
func (r *onceMore) Next() bool { return r.reading.Next(r.RecordReader.Next) }

// Err is part of array.RecordReader.
func (r *onceMore) Err() error {
	if err := r.RecordReader.Err(); err != nil || !r.reading.IsLacking() {
		return err
	}
	return errRowsUsed
}
