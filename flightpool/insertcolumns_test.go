package flightpool

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/script"
)

// SwanLake loads the parameters of an INSERT in bulk, in a way of its own: it knows the table by the schema main alone, puts columns together by their names to the
// letter, and makes NULL of what does not fit. What is asked for its rows it executes as it is written.
func TestAnInsertIsStoredWhereAndAsItSaysOrRefused(t *testing.T) {
	type row struct {
		ID   *int64
		Name *string
	}
	one, x := int64(1), "x"
	lake := "swanlake." // of a server that has one
	insert := func(sql string, args ...any) func(ctx context.Context, s *SessionHandle) error {
		return func(ctx context.Context, s *SessionHandle) error {
			sql := strings.ReplaceAll(sql, "swanlake.", lake)
			_, err := s.Update(ctx, sql, args...)
			return err
		}
	}
	for name, c := range map[string]struct {
		use     string
		run     func(ctx context.Context, s *SessionHandle) error
		in      string // where it is to be stored
		refusal string // of SwanLake's
	}{
		"as they are":     {run: insert("INSERT INTO swanlake.t (id, name) VALUES (?, ?)", 1, "x"), in: "swanlake.main.t"},
		"in another case": {run: insert("INSERT INTO swanlake.t (ID, Name) VALUES (?, ?)", 1, "x"), in: "swanlake.main.t", refusal: `write "id" instead of "ID"`},
		"quoted":          {run: insert(`INSERT INTO swanlake.t ("id", "name") VALUES (?, ?)`, 1, "x"), in: "swanlake.main.t"},
		"in a transaction": {run: func(ctx context.Context, s *SessionHandle) error {
			return s.WithTransaction(ctx, func(ctx context.Context, s *SessionHandle) error {
				return insert("INSERT INTO swanlake.t (ID, Name) VALUES (?, ?)", 1, "x")(ctx, s)
			})
		}, in: "swanlake.main.t", refusal: `write "id" instead of "ID"`},
		"PreparedQuery": {run: func(ctx context.Context, s *SessionHandle) error {
			q, err := s.PrepareQuery(ctx, "INSERT INTO "+lake+"t (ID, Name) VALUES (?, ?)")
			if err == nil {
				_, err = q.Update(ctx, 1, "x")
			}
			return err
		}, in: "swanlake.main.t", refusal: `write "id" instead of "ID"`},
		"RouteQuery": {run: func(ctx context.Context, s *SessionHandle) error {
			r, err := s.QueryWithOptions(ctx, "INSERT INTO "+lake+"t (ID, Name) VALUES (?, ?)", QueryOptions{Route: RouteQuery, Args: []any{1, "x"}})
			return drained(r, err)
		}, in: "swanlake.main.t"},
		"in the session's schema":     {use: "USE swanlake.sales", run: insert("INSERT INTO t VALUES (?, ?)", 1, "x"), in: "swanlake.sales.t", refusal: "in the schema main"},
		"by the catalogue alone":      {use: "USE swanlake.sales", run: insert("INSERT INTO swanlake.t VALUES (?, ?)", 1, "x"), in: "swanlake.sales.t", refusal: "in the schema main"},
		"by catalogue and schema":     {run: insert("INSERT INTO swanlake.sales.t VALUES (?, ?)", 1, "x"), in: "swanlake.sales.t", refusal: "in the schema main"},
		"from where names are main's": {use: "USE swanlake", run: insert("INSERT INTO t VALUES (?, ?)", 1, "x"), in: "swanlake.main.t"},
	} {
		for _, profile := range []testserver.Profile{testserver.SwanLake(), testserver.Strict()} {
			swan := profile.Name == "swanlake"
			if !swan && (c.use != "" || c.in != "swanlake.main.t") {
				continue
			}
			t.Run(fmt.Sprint(profile.Name, " ", name), func(t *testing.T) {
				inBubbleOn(t, testserver.Options{Profile: profile, Engine: script.New()}, Config{MaxSize: 1}, func(r *rig) {
					s := r.session()
					setup := []string{"USE swanlake", "CREATE SCHEMA sales", "CREATE TABLE swanlake.main.t (id BIGINT, name VARCHAR)", "CREATE TABLE swanlake.sales.t (id BIGINT, name VARCHAR)", "USE memory", c.use}
					tables := []string{"swanlake.main.t", "swanlake.sales.t"}
					if lake = "swanlake."; !swan {
						lake, setup, tables = "", []string{"CREATE TABLE t (id BIGINT, name VARCHAR)"}, []string{"t"}
					}
					for _, sql := range setup {
						if sql != "" {
							_, err := s.Update(r.Context(), sql)
							require.NoError(r, err, sql)
						}
					}
					refused := c.refusal != "" && swan
					if err := c.run(r.Context(), s); refused {
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
							require.Equal(r, []row{{&one, &x}}, got)
						}
					}
					require.NoError(r, s.Close())
					require.EqualValues(r, 1, r.pool.Stats().Opens)
				})
			})
		}
	}
}
