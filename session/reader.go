package session

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/eof"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// stateQuery asks for one thing that statements of a session can change. Its answer is
// one row. The key is that of the answer in sideEffects and in Policy.answeredQueries.
type stateQuery struct {
	key     string // the same for all spellings of a name
	subject string // for errors
	sql     string
	notNull bool // NULL stands for no answer
}

func settingQuery(e sqlscan.Effect) stateQuery {
	return stateQuery{key: e.Key(), subject: "the setting " + e.Name, sql: "SELECT current_setting(" + literal(e.Unquoted()) + ")"}
}

// preparedNameQuery tells whether the session begins with a prepared statement of
// the name, which DuckDB replaces. Other servers refuse the second of a name.
func preparedNameQuery(e sqlscan.Effect) stateQuery {
	return stateQuery{key: "(prepared) " + e.Key(), subject: "the prepared statements",
		sql: "SELECT count(*) FROM duckdb_prepared_statements() WHERE lower(name) = " + literal(e.Key())}
}

// stateValues is the one row that a stateQuery has returned. The texts are copied out
// of the batch, whose memory the backend may use again. Two are the same state if all
// columns are equal; NULL differs from the empty text.
type stateValues []cell

type cell struct {
	text string
	null bool
}

func (a stateValues) equal(b stateValues) bool {
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

// runStateQuery runs a stateQuery, which has one row. Any other number of rows is no
// answer, and counts as the server's refusal: KeepsConn is true of that error. An
// answer is noted for the whole server, so that the query may be asked inside a
// transaction from then on.
func (s *SessionHandle) runStateQuery(ctx context.Context, r stateQuery, call backend.Call) (stateValues, error) {
	stream, err := s.conn.Query(ctx, r.sql, call)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", r.subject, err)
	}
	defer stream.Close()
	batch, err := stream.Next()
	if err != nil {
		if eof.Reached(err) {
			err = &backend.Error{Stage: backend.StageFetch, Fault: backend.FaultStatement, Err: errors.New("the server gave no row")}
		}
		return nil, fmt.Errorf("read %s: %w", r.subject, err)
	}
	row := make(stateValues, batch.NumCols())
	for i, col := range batch.Columns() {
		switch {
		case col.Len() != 1:
			return nil, &backend.Error{Stage: backend.StageFetch, Fault: backend.FaultStatement, Err: fmt.Errorf("read %s: %d rows", r.subject, col.Len())}
		case col.IsNull(0) && r.notNull:
			return nil, &backend.Error{Stage: backend.StageFetch, Fault: backend.FaultStatement, Err: fmt.Errorf("read %s: it is NULL", r.subject)}
		case col.IsNull(0):
			row[i] = cell{null: true}
		default:
			row[i] = cell{text: strings.Clone(col.ValueStr(0))}
		}
	}
	if err := drain(stream); err != nil {
		return nil, fmt.Errorf("read %s: %w", r.subject, err)
	}
	s.policy.answeredQueries.add(r.key)
	return row, nil
}

// learnAnswered finds out whether the server answers r, for the next session that needs
// it inside a transaction. This session is beyond help: what it reads has changed
// already.
func (s *SessionHandle) learnAnswered(ctx context.Context, r stateQuery) {
	if !s.policy.answeredQueries.has(r.key) {
		_, _ = s.runStateQuery(ctx, r, backend.Call{})
	}
}
