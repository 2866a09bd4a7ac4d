package session

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/flightpool/flightpool/internal/eof"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// reader asks for one thing that statements of a session can change.
type reader struct {
	key  string // the same for all spellings of a name
	what string // for errors
	sql  string
	set  bool // NULL stands for no answer
}

func settingReader(e sqlscan.Effect) reader {
	return reader{key: e.Key(), what: "the setting " + e.Name, sql: "SELECT current_setting(" + literal(e.Plain()) + ")"}
}

// preparedReader tells whether the session begins with a prepared statement of
// the name, which DuckDB replaces. Other servers refuse the second of a name.
func preparedReader(e sqlscan.Effect) reader {
	return reader{key: "(prepared) " + e.Key(), what: "the prepared statements",
		sql: "SELECT count(*) FROM duckdb_prepared_statements() WHERE lower(name) = " + literal(e.Key())}
}

// reading is the one row that a reader has seen.
type reading []cell

type cell struct {
	text string
	null bool
}

func (a reading) equal(b reading) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// readRow runs a reader's query, which has one row.
func (s *SessionHandle) readRow(ctx context.Context, r reader, call Call) (reading, error) {
	stream, err := s.conn.Query(ctx, r.sql, call)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", r.what, err)
	}
	defer stream.Close()
	batch, err := stream.Next()
	if err != nil {
		if eof.Reached(err) {
			err = &Error{Stage: StageFetch, Fault: FaultStatement, Err: errors.New("the server gave no row")}
		}
		return nil, fmt.Errorf("read %s: %w", r.what, err)
	}
	row := make(reading, batch.NumCols())
	for i, col := range batch.Columns() {
		switch {
		case col.Len() != 1:
			return nil, &Error{Stage: StageFetch, Fault: FaultStatement, Err: fmt.Errorf("read %s: %d rows", r.what, col.Len())}
		case col.IsNull(0) && r.set:
			return nil, &Error{Stage: StageFetch, Fault: FaultStatement, Err: fmt.Errorf("read %s: it is NULL", r.what)}
		case col.IsNull(0):
			row[i] = cell{null: true}
		default:
			row[i] = cell{text: strings.Clone(col.ValueStr(0))}
		}
	}
	if err := drain(stream); err != nil {
		return nil, fmt.Errorf("read %s: %w", r.what, err)
	}
	s.policy.readable.add(r.key)
	return row, nil
}

// learn finds out whether the server answers r, for the next session that
// needs it inside a transaction.
func (s *SessionHandle) learn(ctx context.Context, r reader) {
	if !s.policy.readable.has(r.key) {
		_, _ = s.readRow(ctx, r, Call{})
	}
}
