package flightpool

import (
	"errors"
	"reflect"
	"sync"

	"github.com/apache/arrow-go/v18/arrow/array"
)

// usedRows are the readers of which attempts of one InTx have taken rows. A reader gives its rows once, so that the next attempt
// would load what is left of one from outside of the function, nothing mostly, and be told as done. A nil one, of BeginTx, has none.
type usedRows struct {
	mu     sync.Mutex
	now    []usedReader // of this attempt
	before []usedReader
}

type usedReader struct {
	rows array.RecordReader
	rest bool // they were not taken to their end: who goes on has the others alone
}

var errRowsUsed = errors.New("its rows were taken by an attempt of the transaction before, which has lost a conflict: make the reader in the function")

// nextAttempt is for one that has lost a conflict.
func (u *usedRows) nextAttempt() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.before, u.now = append(u.before, u.now...), nil
}

// note takes note of an ingestion.
func (u *usedRows) note(rows array.RecordReader, stored int64, err error) {
	var e *Error
	rest := errors.As(err, &e) && e.RowsTaken
	if u == nil || err == nil && stored == 0 || err != nil && !rest || !reflect.ValueOf(rows).Comparable() {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.now = append(u.now, usedReader{rows, rest})
}

// once is the reader, which fails where its rows are lacking. One that was read to its end may have begun again.
func (u *usedRows) once(rows array.RecordReader) array.RecordReader {
	if u == nil || rows == nil || !reflect.ValueOf(rows).Comparable() {
		return rows
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, used := range u.before {
		if used.rows == rows {
			return &onceMore{RecordReader: rows, rest: used.rest}
		}
	}
	return rows
}

// onceMore are rows of which an attempt before has taken some, or all.
type onceMore struct {
	array.RecordReader
	rest    bool // it has not taken all
	begun   bool
	lacking bool
}

// Next is part of array.RecordReader.
func (r *onceMore) Next() bool {
	if !r.lacking && !r.rest && r.RecordReader.Next() {
		r.begun = true
		return true
	}
	r.lacking = r.lacking || !r.begun
	return false
}

// Err is part of array.RecordReader.
func (r *onceMore) Err() error {
	if err := r.RecordReader.Err(); err != nil || !r.lacking {
		return err
	}
	return errRowsUsed
}
