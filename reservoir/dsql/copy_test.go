package dsql_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir/dsql"
)

// A source that panics does so at the caller, and nothing of it is copied.
func TestASourceThatPanicsCopiesNothing(t *testing.T) {
	g := startGate(t, nil)
	p := newPool(t, g, func(c *dsql.Config) { c.MaxSize = 1 })
	ctx := cleared(t, p, "copied")
	for name, end := range map[string]func(){"panics": func() { panic("the user's") }, "ends its goroutine": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			n, panicked, returned := 0, any(nil), false
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { panicked = recover() }()
				_, _ = p.CopyFrom(ctx, pgx.Identifier{"copied"}, []string{"n"}, pgx.CopyFromFunc(func() ([]any, error) {
					if n++; n > 10 {
						end()
					}
					return []any{n}, nil
				}))
				returned = true
			}()
			<-done
			require.False(t, returned)
			if name == "panics" {
				require.Equal(t, "the user's", panicked)
			}
			require.Zero(t, count(t, p, "copied"))
			require.Equal(t, 1, g.Stats().Admitted, "it is the same connection")
		})
	}
}

// A source that waits for its next row does not hold the caller after the end of
// the context.
func TestASourceThatWaitsDoesNotHoldItsCaller(t *testing.T) {
	g := startGate(t, nil)
	p := newPool(t, g, func(c *dsql.Config) { c.MaxSize = 1 })
	ctx := cleared(t, p, "copied")
	next := make(chan struct{})
	defer close(next)
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	rows := 0
	_, err := p.CopyFrom(short, pgx.Identifier{"copied"}, []string{"n"}, pgx.CopyFromFunc(func() ([]any, error) {
		if rows++; rows > 1 {
			<-next
			return nil, nil
		}
		return []any{rows}, nil
	}))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Zero(t, count(t, p, "copied"))
}

func TestACopyHasAllRowsOrTheErrorOfItsSource(t *testing.T) {
	p := newPool(t, startGate(t, nil), func(c *dsql.Config) { c.MaxSize = 1 })
	ctx := cleared(t, p, "copied")
	const rows = 3000
	n := 0
	made, err := p.CopyFrom(ctx, pgx.Identifier{"copied"}, []string{"n"}, pgx.CopyFromSlice(rows, func(i int) ([]any, error) { return []any{i}, nil }))
	require.NoError(t, err)
	require.EqualValues(t, rows, made)
	require.NoError(t, p.QueryRow(ctx, "select count(distinct n) from copied").Scan(&n))
	require.Equal(t, rows, n)
	_, err = p.CopyFrom(ctx, pgx.Identifier{"copied"}, []string{"n"}, pgx.CopyFromSlice(rows, func(i int) ([]any, error) {
		if i == rows/2 {
			return nil, context.Canceled
		}
		return []any{i}, nil
	}))
	require.ErrorContains(t, err, context.Canceled.Error())
	require.Equal(t, rows, count(t, p, "copied"))
}

// A source gives its rows once: the run behind a conflict would copy none of those from outside of the function, and be told as done.
func TestRowsThatARunHasReadAreNotLackingInTheNext(t *testing.T) {
	g := startGate(t, nil)
	p := newPool(t, g, func(c *dsql.Config) { c.MaxSize = 1 })
	ctx := cleared(t, p, "copied")
	source := func() pgx.CopyFromSource { return pgx.CopyFromRows([][]any{{1}, {2}}) }
	left := 2
	for _, c := range []struct {
		make func() pgx.CopyFromSource
		want int
		fail string
	}{
		{source, 2, ""},
		{func() func() pgx.CopyFromSource { s := source(); return func() pgx.CopyFromSource { return s } }(), 0, "were read by a run of the transaction before"},
		{func() func() pgx.CopyFromSource {
			s := pgx.CopyFromRows(nil)
			return func() pgx.CopyFromSource { return s }
		}(), 0, ""},
		{func() func() pgx.CopyFromSource {
			s := pgx.CopyFromFunc(func() ([]any, error) { // begins again behind its end
				if left--; left < 0 {
					left = 2
					return nil, nil
				}
				return []any{left}, nil
			})
			return func() pgx.CopyFromSource { return s }
		}(), 2, ""},
	} {
		_, err := p.Exec(ctx, "delete from copied")
		require.NoError(t, err)
		g.FailCommits(1, "OC000")
		runs := 0
		err = p.InTx(ctx, func(tx pgx.Tx) error {
			runs++
			_, err := tx.CopyFrom(ctx, pgx.Identifier{"copied"}, []string{"n"}, c.make())
			return err
		})
		require.Equal(t, 2, runs)
		if c.fail == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, c.fail)
		}
		require.Equal(t, c.want, count(t, p, "copied"))
	}
}
