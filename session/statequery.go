package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/effect"
	"github.com/flightpool/flightpool/internal/eof"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// stateQuery asks for one thing that statements of a session can change. Its answer is
// one row. The key is that of the answer in sideEffects and in Policy.answeredQueries.
type stateQuery struct {
	key      string // the same for all spellings of a name
	subject  string // for errors
	sql      string
	columns  int  // of the answer at least; 0 for one
	notNull  bool // NULL stands for no answer
	distinct bool // so do two columns that are equal, on a server that has not told two that differ
	setting  bool // it asks for a setting that the server has, or that cannot be set
}

// anySetting is in Policy.answeredQueries where the server has told a setting.
const anySetting = "(setting)"

// answers reports whether the server is known to answer r, so that it may be asked inside a transaction. One
// that has told a setting tells every other that it has, and refuses to set those that it has not.
func (p *Policy) answers(r stateQuery) bool {
	return p.answeredQueries.has(r.key) || r.setting && p.answeredQueries.has(anySetting)
}

func settingQuery(e sqlscan.Effect) stateQuery {
	return stateQuery{
		key: e.SettingKey(), subject: "the setting " + e.Name, sql: "SELECT current_setting(" + literal(e.Unquoted()) + ")",
		setting: e.Kind != sqlscan.EffectImpliedSetting && !strings.Contains(e.Name, "."), // PostgreSQL sets any name with a dot
	}
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

// runStateQuery runs a stateQuery, which has one row. Any other number of rows, or too
// few columns, is no answer, and counts as the server's refusal: KeepsConn is true of that error. An
// answer is noted for the whole server, so that the query may be asked inside a
// transaction from then on.
//
// What is no answer is read to its end, too: what comes with the end of a reply that is cut, such as another
// token, is lost, and the server may still be at it.
func (s *SessionHandle) runStateQuery(ctx context.Context, r stateQuery, call backend.Call) (stateValues, error) {
	stream, err := s.conn.Query(ctx, r.sql, call)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", r.subject, err)
	}
	defer stream.Close()
	batch, err := nextRows(stream)
	if err != nil {
		if eof.Reached(err) {
			err = &backend.Error{Stage: backend.StageFetch, Fault: backend.FaultStatement, Err: errors.New("the server gave no row")}
		}
		return nil, fmt.Errorf("read %s: %w", r.subject, err)
	}
	r.distinct = r.distinct && !s.policy.answeredQueries.has(r.key)
	row, unfit := r.valuesOf(batch)
	if err := drain(stream); err != nil {
		return nil, fmt.Errorf("read %s: %w", r.subject, err)
	}
	if unfit != nil {
		return nil, unfit
	}
	s.policy.answeredQueries.add(r.key)
	if r.setting {
		s.policy.answeredQueries.add(anySetting)
	}
	return row, nil
}

// valuesOf are the values of the one row.
func (r stateQuery) valuesOf(batch arrow.RecordBatch) (stateValues, error) {
	if want := cmp.Or(r.columns, 1); int(batch.NumCols()) < want {
		return nil, &backend.Error{Stage: backend.StageFetch, Fault: backend.FaultStatement, Err: fmt.Errorf("read %s: %d columns for %d", r.subject, batch.NumCols(), want)}
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
	if r.distinct && len(row) == 2 && row[0] == row[1] {
		return nil, &backend.Error{Stage: backend.StageFetch, Fault: backend.FaultStatement, Err: fmt.Errorf("read %s: both are %q", r.subject, row[0].text)}
	}
	return row, nil
}

// nextRows is the next batch of a stream that has rows. Servers begin results with one that has none.
func nextRows(stream backend.Stream) (arrow.RecordBatch, error) {
	for {
		batch, err := stream.Next()
		if err != nil || batch.NumRows() > 0 {
			return batch, err
		}
	}
}

// learnAnswered finds out whether the server answers r, for the next session that needs
// it inside a transaction. This session is beyond help: what it reads has changed
// already.
func (s *SessionHandle) learnAnswered(ctx context.Context, r stateQuery) {
	if !s.policy.answeredQueries.has(r.key) {
		_, _ = s.runStateQuery(ctx, r, backend.Call{})
	}
}

// maxTexts bounds what is kept about a server, in entries. What is not kept counts as
// unknown: that costs round trips, and in a transaction a connection, but is never
// wrong.
const maxTexts = 1024

// textSet is a bounded set of texts, for use from any goroutine. It forgets nothing;
// once full it takes no more. What is in it was learned of the server, not of one
// session, and so it is kept in the Policy that all sessions of the server share.
type textSet struct {
	mu  sync.Mutex
	set map[string]struct{}
}

func (t *textSet) has(text string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.set[text]
	return ok
}

func (t *textSet) add(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.set == nil {
		t.set = make(map[string]struct{})
	}
	if len(t.set) < maxTexts {
		t.set[text] = struct{}{}
	}
}

// reportsNamespace reports whether the server has told where a session is.
func (p *Policy) reportsNamespace() bool {
	return slices.ContainsFunc(namespaceQueries, func(r stateQuery) bool { return p.answeredQueries.has(r.key) })
}

// tellsNoPlace finds out, once the server has refused to tell where the session is,
// whether it is one that cannot tell, and takes note of that for good. One that has
// told it before can: then its refusals are failures, as they are where it refuses a
// harmless query too. Its last word is asked for after it has answered that one. A
// single refusal is not enough, since the note holds for every later borrower: one that
// was made by mistake has a bulk load leave the session elsewhere unnoticed.
func (s *SessionHandle) tellsNoPlace(ctx context.Context) (bool, error) {
	if s.policy.reportsNamespace() {
		return false, nil
	}
	if err := s.runProbe(ctx); err != nil {
		if backend.FaultIn(err).KeepsConn() {
			err = nil
		}
		return false, err
	}
	for _, r := range []stateQuery{namespaceQuery, catalogQuery} {
		if _, err := s.runStateQuery(ctx, r, backend.Call{}); err == nil || !backend.FaultIn(err).KeepsConn() || effect.NoVerdict(err) {
			return false, err
		}
	}
	s.policy.nonMovingInserts.add(namespaceUnsupported)
	return true, nil
}

// firstValue is a copy of the first value of a column as text, empty for one without
// rows. The text of a column goes with its batch.
func firstValue(col interface {
	Len() int
	ValueStr(int) string
}) string {
	if col.Len() == 0 {
		return ""
	}
	return strings.Clone(col.ValueStr(0))
}
