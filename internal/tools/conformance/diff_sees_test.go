//go:build duckdb_arrow

package conformance

import (
	"context"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"
)

// wrong is arrow-go's client with one thing wrong.
type wrong struct {
	*bare
	how string
}

func (w *wrong) rollback(ctx context.Context) error {
	if w.how == "a rollback commits" {
		return w.commit(ctx)
	}
	return w.bare.rollback(ctx)
}

func (w *wrong) query(ctx context.Context, s step, params arrow.RecordBatch) (*rows, error) {
	r, err := w.bare.query(ctx, s, params)
	switch {
	case w.how == "an error is swallowed" && err != nil:
		return &rows{}, nil
	case err != nil:
		return nil, err
	}
	switch w.how {
	case "a row is missing":
		r.rows = r.rows[:len(r.rows)-1]
	case "rows change places":
		r.rows[0], r.rows[1] = r.rows[1], r.rows[0]
	case "a value is another":
		r.rows[0] = strings.Replace(r.rows[0], "a", "b", 1)
	case "a type is another":
		r.schema = strings.Replace(r.schema, "int32", "int64", 1)
	}
	return r, nil
}

func (w *wrong) update(ctx context.Context, s step, params arrow.RecordBatch) (int64, error) {
	if w.how == "an update runs twice" {
		_, _ = w.bare.update(ctx, s, params)
	}
	n, err := w.bare.update(ctx, s, params)
	if w.how == "a count is another" {
		n++
	}
	return n, err
}

func TestEveryKindOfDifferenceIsSeen(t *testing.T) {
	p, err := parse(`update CREATE OR REPLACE TABLE t (i INTEGER, s VARCHAR)
update INSERT INTO t VALUES (1, 'a'), (2, 'aa')
begin
update INSERT INTO t VALUES (3, 'aaa')
rollback
query:ordered SELECT * FROM t WHERE i < 3 ORDER BY i
query SELECT * FROM nowhere
`)
	require.NoError(t, err)
	ps := startPeers(t)
	diffs, err := ps.differences(t.Context(), p)
	require.NoError(t, err)
	require.Empty(t, diffs)
	for _, how := range []string{
		"a rollback commits", "an error is swallowed", "a row is missing", "rows change places", "a value is another", "a type is another",
		"an update runs twice", "a count is another",
	} {
		ps[1].open = func(context.Context) (client, error) {
			b, err := openBare(ps[1].addr)
			return &wrong{b, how}, err
		}
		diffs, err := ps.differences(t.Context(), p)
		require.NoError(t, err, how)
		require.NotEmpty(t, diffs, how)
	}
}
