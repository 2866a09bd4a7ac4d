package flightpool

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/script"
)

// SwanLake loads the parameters of an INSERT in bulk, in a way of its own: it knows the table by the schema main alone, puts columns together by their names to the
// letter, and makes NULL of what does not fit. What is asked for its rows it executes as it is written: so is a single row.
func TestAnInsertIsStoredWhereAndAsItSaysOrRefused(t *testing.T) {
	type row struct {
		ID   *int64
		Name *string
	}
	one, x := int64(1), "x"
	lake := "swanlake." // of a server that has one
	insert := func(sql string) func(ctx context.Context, s *SessionHandle, args ...any) error {
		return func(ctx context.Context, s *SessionHandle, args ...any) error {
			sql := strings.ReplaceAll(sql, "swanlake.", lake)
			_, err := s.Update(ctx, sql, args...)
			return err
		}
	}
	for name, c := range map[string]struct {
		use     string
		run     func(ctx context.Context, s *SessionHandle, args ...any) error
		in      string // where it is to be stored
		refusal string // of SwanLake's, of several rows
	}{
		"as they are":     {run: insert("INSERT INTO swanlake.t (id, name) VALUES (?, ?)"), in: "swanlake.main.t"},
		"in another case": {run: insert("INSERT INTO swanlake.t (ID, Name) VALUES (?, ?)"), in: "swanlake.main.t", refusal: `write "id" instead of "ID"`},
		"quoted":          {run: insert(`INSERT INTO swanlake.t ("id", "name") VALUES (?, ?)`), in: "swanlake.main.t"},
		"in a transaction": {run: func(ctx context.Context, s *SessionHandle, args ...any) error {
			return s.WithTransaction(ctx, func(ctx context.Context, s *SessionHandle) error {
				return insert("INSERT INTO swanlake.t (ID, Name) VALUES (?, ?)")(ctx, s, args...)
			})
		}, in: "swanlake.main.t", refusal: `write "id" instead of "ID"`},
		"PreparedQuery": {run: func(ctx context.Context, s *SessionHandle, args ...any) error {
			q, err := s.PrepareQuery(ctx, "INSERT INTO "+lake+"t (ID, Name) VALUES (?, ?)")
			if err == nil {
				_, err = q.Update(ctx, args...)
			}
			return err
		}, in: "swanlake.main.t", refusal: `write "id" instead of "ID"`},
		"in the session's schema":     {use: "USE swanlake.sales", run: insert("INSERT INTO t VALUES (?, ?)"), in: "swanlake.sales.t", refusal: "in the schema main"},
		"by catalogue and schema":     {run: insert("INSERT INTO swanlake.sales.t VALUES (?, ?)"), in: "swanlake.sales.t", refusal: "in the schema main"},
		"from where names are main's": {use: "USE swanlake", run: insert("INSERT INTO t VALUES (?, ?)"), in: "swanlake.main.t"},
		"in the session's catalogue":  {run: insert("INSERT INTO t VALUES (?, ?)"), in: "memory.main.t", refusal: "in a catalogue of its own"},
	} {
		for _, profile := range []testserver.Profile{testserver.SwanLake(), testserver.Strict()} {
			swan := profile.Name == "swanlake"
			if !swan && (c.use != "" || c.in != "swanlake.main.t") {
				continue
			}
			for _, several := range []bool{false, true} {
				t.Run(fmt.Sprint(profile.Name, " ", name, " ", several), func(t *testing.T) {
					args, want := []any{1, "x"}, []row{{&one, &x}}
					if several {
						args, want = []any{twoRows(t)}, []row{{&one, &x}, {&one, &x}}
					}
					inBubbleOn(t, testserver.Options{Profile: profile, Engine: script.New()}, Config{MaxSize: 1}, func(r *rig) {
						s := r.session()
						setup := []string{"CREATE TABLE memory.main.t (id BIGINT, name VARCHAR)", "USE swanlake", "CREATE SCHEMA sales", "CREATE TABLE swanlake.main.t (id BIGINT, name VARCHAR)", "CREATE TABLE swanlake.sales.t (id BIGINT, name VARCHAR)", "USE memory", c.use}
						tables := []string{"swanlake.main.t", "swanlake.sales.t", "memory.main.t"}
						if lake = "swanlake."; !swan {
							lake, setup, tables = "", []string{"CREATE TABLE t (id BIGINT, name VARCHAR)"}, []string{"t"}
						}
						for _, sql := range setup {
							if sql != "" {
								_, err := s.Update(r.Context(), sql)
								require.NoError(r, err, sql)
							}
						}
						refused := c.refusal != "" && swan && several
						if err := c.run(r.Context(), s, args...); refused {
							require.ErrorContains(r, err, c.refusal)
						} else {
							require.NoError(r, err)
						}
						for _, table := range tables {
							got, err := CollectRows[row](s.Query(r.Context(), "SELECT * FROM "+table))
							require.NoError(r, err)
							if refused || swan && table != c.in {
								require.Empty(r, got, table)
							} else {
								require.Equal(r, want, got, table)
							}
						}
						require.NoError(r, s.Close())
						require.EqualValues(r, 1, r.pool.Stats().Opens)
					})
				})
			}
		}
	}
}

// twoRows are two rows of an id and a name.
func twoRows(t *testing.T) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "1", Type: arrow.PrimitiveTypes.Int64}, {Name: "2", Type: arrow.BinaryTypes.String}}, nil))
	defer b.Release()
	b.Field(0).(*array.Int64Builder).AppendValues([]int64{1, 1}, nil)
	b.Field(1).(*array.StringBuilder).AppendValues([]string{"x", "x"}, nil)
	rows := b.NewRecordBatch()
	t.Cleanup(rows.Release)
	return rows
}
