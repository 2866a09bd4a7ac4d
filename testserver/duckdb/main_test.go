//go:build duckdb_arrow

package duckdb

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	capi "github.com/duckdb/duckdb-go-bindings"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// With the tag debug_bindings the bindings count what C++ has handed out, and
// panic here unless all of it was given back.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if code == 0 {
			capi.VerifyAllocationCounters()
		}
		os.Exit(code)
	}))
}

// newSession opens a database with one session.
func newSession(t *testing.T) *session {
	t.Helper()
	return openSession(t, newEngine(t, Config{}))
}

func newEngine(t *testing.T, cfg Config) *Engine {
	t.Helper()
	e, err := New(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

func openSession(t *testing.T, e *Engine) *session {
	t.Helper()
	s, err := e.Open(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s.(*session)
}

func (s *session) mustUpdate(t *testing.T, sql string) int64 {
	t.Helper()
	n, err := s.Update(t.Context(), sql, nil)
	require.NoError(t, err, sql)
	return n
}

// query returns all rows as text.
func (s *session) query(ctx context.Context, sql string, params arrow.RecordBatch) ([][]string, error) {
	r, err := s.Query(ctx, sql, params)
	if err != nil {
		return nil, err
	}
	defer r.Release()
	var all [][]string
	for r.Next() {
		eachRow(r.RecordBatch(), func(row []string) { all = append(all, append([]string(nil), row...)) })
	}
	return all, r.Err()
}

func (s *session) mustQuery(t *testing.T, sql string) [][]string {
	t.Helper()
	rows, err := s.query(t.Context(), sql, nil)
	require.NoError(t, err, sql)
	return rows
}

// record makes a batch from JSON rows.
func record(t *testing.T, schema *arrow.Schema, json string) arrow.RecordBatch {
	t.Helper()
	r, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(json))
	require.NoError(t, err)
	t.Cleanup(r.Release)
	return r
}

// columns makes a schema: names are "a", "b", ...
func columns(types ...arrow.DataType) *arrow.Schema {
	fields := make([]arrow.Field, len(types))
	for i, typ := range types {
		fields[i] = arrow.Field{Name: fmt.Sprintf("%c", 'a'+i), Type: typ, Nullable: true}
	}
	return arrow.NewSchema(fields, nil)
}
