package flightpool

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
)

// DazzleDuck's JDBC driver closes a prepared change whose execution fails.
func TestAPreparedChangeGoesOnBehindAnExecutionThatHasFailed(t *testing.T) {
	profile := testserver.Strict()
	profile.ClosesFailed = true
	for name, args := range map[string]func(x int64) []any{
		"a value":      func(x int64) []any { return []any{x} },
		"a batch":      func(x int64) []any { return []any{ints("x", x)} },
		"several rows": func(x int64) []any { return []any{ints("x", x, x+10)} },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, profile, Config{MaxSize: 1}, func(r *rig) {
				ctx := r.Context()
				r.exec("CREATE TABLE t (x BIGINT PRIMARY KEY)")
				r.exec("INSERT INTO t VALUES (1)")
				s := r.session()
				defer func() { require.NoError(r, s.Close()) }()
				q, err := s.PrepareQuery(ctx, "INSERT INTO t VALUES (?)")
				require.NoError(r, err)
				for range 2 {
					_, err = q.Update(ctx, args(1)...)
					require.ErrorContains(r, err, "uplicate", "there is a row 1")
				}
				_, err = q.Update(ctx, args(2)...)
				require.NoError(r, err)
				require.Equal(r, "1", r.value(s, "SELECT count(*) FROM t WHERE x = 2"))
			})
		})
	}
}
