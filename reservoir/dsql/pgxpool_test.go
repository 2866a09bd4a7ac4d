package dsql_test

import (
	"context"
	"database/sql"
	"reflect"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/reservoir/dsql"
)

// What sqlc generates for pgx/v5, with :copyfrom and :batch queries.
type sqlcPgx interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
	Query(context.Context, string, ...any) (pgx.Rows, error)
	QueryRow(context.Context, string, ...any) pgx.Row
	CopyFrom(ctx context.Context, tableName pgx.Identifier, columnNames []string, rowSrc pgx.CopyFromSource) (int64, error)
	SendBatch(context.Context, *pgx.Batch) pgx.BatchResults
}

// What it generates for database/sql.
type sqlcSQL interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
	PrepareContext(context.Context, string) (*sql.Stmt, error)
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	QueryRowContext(context.Context, string, ...any) *sql.Row
}

var (
	_ sqlcPgx = (*dsql.Pool)(nil)
	_ sqlcPgx = (*dsql.Conn)(nil)
	_ sqlcPgx = (pgx.Tx)(nil)
	_ sqlcSQL = (*sql.DB)(nil)

	// What pgx.BeginFunc and pgx.BeginTxFunc take.
	_ interface {
		Begin(context.Context) (pgx.Tx, error)
		BeginTx(context.Context, pgx.TxOptions) (pgx.Tx, error)
	} = (*dsql.Pool)(nil)
)

// The methods of pgxpool are here by the same names and with the same types,
// but for those that name a type of pgxpool, and for those listed.
func TestThePoolHasTheMethodsOfPgxpool(t *testing.T) {
	differs := map[string]string{
		"Pool.Close":  "it takes a context, which bounds the wait for loans, and returns an error",
		"Conn.Hijack": "a connection outside the reservoir would outlive its lease",
	}
	names := func(f reflect.Type) []string {
		var all []string
		for i := 1; i < f.NumIn(); i++ {
			all = append(all, f.In(i).String())
		}
		for i := range f.NumOut() {
			all = append(all, f.Out(i).String())
		}
		return all
	}
	replaced := map[string]string{
		"*pgxpool.Conn": "*dsql.Conn", "[]*pgxpool.Conn": "[]*dsql.Conn", "func(*pgxpool.Conn) error": "func(*dsql.Conn) error",
		"*pgxpool.Config": "dsql.Config", "*pgxpool.Stat": "*dsql.PoolStat",
	}
	for _, pair := range [][2]reflect.Type{
		{reflect.TypeFor[*pgxpool.Pool](), reflect.TypeFor[*dsql.Pool]()},
		{reflect.TypeFor[*pgxpool.Conn](), reflect.TypeFor[*dsql.Conn]()},
		{reflect.TypeFor[*pgxpool.Stat](), reflect.TypeFor[*dsql.PoolStat]()},
	} {
		for i := range pair[0].NumMethod() {
			theirs := pair[0].Method(i)
			name := pair[0].Elem().Name() + "." + theirs.Name
			ours, ok := pair[1].MethodByName(theirs.Name)
			if differs[name] != "" {
				continue
			}
			require.True(t, ok, name)
			want := names(theirs.Type)
			for i, n := range want {
				if r := replaced[n]; r != "" {
					want[i] = r
				}
			}
			require.Equal(t, want, names(ours.Type), name)
		}
	}
}

func TestAllIdleConnectionsCanBeBorrowedAndAllReplaced(t *testing.T) {
	g := startGate(t, nil)
	p := newPool(t, g, nil)
	ctx := within(t, 20*time.Second)
	require.NoError(t, p.WaitReady(ctx, 4))
	held, err := p.Acquire(ctx)
	require.NoError(t, err)
	all := p.AcquireAllIdle(ctx)
	require.Len(t, all, 3)
	require.Empty(t, p.AcquireAllIdle(ctx))
	old := map[uint32]bool{held.Conn().PgConn().PID(): true}
	for _, c := range all {
		require.NoError(t, c.Ping(ctx))
		old[c.Conn().PgConn().PID()] = true
		c.Release()
	}
	require.Len(t, old, 4)
	p.Reset()
	require.NoError(t, held.Ping(ctx), "one in use lives until it comes back")
	held.Release()
	require.NoError(t, p.WaitReady(ctx, 4))
	reach(t, "all four are replaced", func() bool { return p.Stats().Reservoir.Closed[reservoir.Outdated] == 4 })
	replaced := p.AcquireAllIdle(ctx)
	require.Len(t, replaced, 4)
	for _, c := range replaced {
		require.False(t, old[c.Conn().PgConn().PID()])
		c.Release()
	}
	part, err := p.Cluster().NewPool(dsql.View{Max: 2})
	require.NoError(t, err)
	few := part.AcquireAllIdle(ctx)
	require.Len(t, few, 2, "its maximum")
	for _, c := range few {
		c.Release()
	}

	none := newPool(t, g, func(c *dsql.Config) { c.MaxSize, c.OnDemand = 1, true })
	for range 3 {
		require.Empty(t, none.AcquireAllIdle(ctx))
	}
	require.NoError(t, none.Ping(ctx), "what was not there is not missing")
}

func TestTheConfigurationThatIsGivenOutIsACopyWithItsDefaults(t *testing.T) {
	p := newPool(t, startGate(t, nil), func(c *dsql.Config) { c.RuntimeParams = map[string]string{"application_name": "mine"} })
	cfg := p.Config()
	require.Equal(t, "admin", cfg.User)
	require.Equal(t, 11*time.Minute, cfg.ReplaceAfter)
	cfg.RuntimeParams["application_name"], cfg.TLS.RootCAs = "other", nil
	p.Reset()
	var name string
	require.NoError(t, p.QueryRow(within(t, 20*time.Second), "show application_name").Scan(&name))
	require.Equal(t, "mine", name)
}

func TestStatsCountCallersByWhatBecameOfThem(t *testing.T) {
	g := startGate(t, nil)
	p := newPool(t, g, func(c *dsql.Config) { c.MaxSize = 2 })
	ctx := within(t, 20*time.Second)
	require.NoError(t, p.WaitReady(ctx, 2))
	require.False(t, p.Stats().Low)
	require.Equal(t, 2, p.Stats().MinIdle)
	a, err := p.Acquire(ctx)
	require.NoError(t, err)
	b, err := p.Acquire(ctx)
	require.NoError(t, err)
	require.True(t, p.Stats().Low)
	_, err = p.Acquire(within(t, 30*time.Millisecond))
	require.ErrorIs(t, err, dsql.ErrReservoirEmpty)
	got := make(chan error)
	go func() { got <- p.Ping(ctx) }()
	reach(t, "one waits", func() bool { s := p.Stats(); return s.Waiting == 1 && s.Queued == 1 })
	a.Release()
	require.NoError(t, <-got)
	b.Release()
	s := p.Stats()
	require.EqualValues(t, 3, s.Checkouts)
	require.EqualValues(t, 2, s.Empty)
	require.EqualValues(t, 1, s.Failures)
	require.Positive(t, s.WaitTime)
	require.Zero(t, s.FailedOpens)
	require.EqualValues(t, 2, s.Opened)
	stat := p.Stat()
	require.EqualValues(t, []any{int64(3), int64(2), int64(1), int32(2), int32(2), int32(0), int32(2)}, []any{
		stat.AcquireCount(), stat.EmptyAcquireCount(), stat.CanceledAcquireCount(), stat.MaxConns(), stat.TotalConns(), stat.AcquiredConns(), stat.IdleConns(),
	})
	require.Equal(t, s.WaitTime, stat.EmptyAcquireWaitTime())
	require.EqualValues(t, 2, stat.NewConnsCount())
}
