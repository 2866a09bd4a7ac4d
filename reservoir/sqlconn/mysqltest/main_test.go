package mysqltest

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/reservoir/sqlconn"
	"github.com/flightpool/flightpool/testserver/localdeps"
)

func TestMain(m *testing.M) {
	_ = mysql.SetLogger(&mysql.NopLogger{}) // it is not nil
	goleak.VerifyTestMain(m)
}

// rig is a server with a pool of one connection to it.
type rig struct {
	*testing.T
	server *localdeps.MariaDB
	pool   *reservoir.Reservoir[*sqlconn.Conn]
	told   chan error // of statements that were stopped
}

func newRig(t *testing.T, change func(c *sqlconn.Config)) *rig {
	r := &rig{T: t, told: make(chan error, 1)}
	var err error
	r.server, err = localdeps.StartMariaDB(t.Context(), localdeps.MariaDBOptions{})
	require.NoError(t, err)
	t.Cleanup(r.server.Close)
	connector, err := mysql.MySQLDriver{}.OpenConnector(r.server.DSN())
	require.NoError(t, err)
	hub := sqlconn.NewWrapper()
	t.Cleanup(func() { require.NoError(t, hub.Close()) })
	cfg := sqlconn.Config{Connector: connector, Kind: sqlconn.MySQL, Check: sqlconn.FullValidate, Stopped: func(err error) { r.told <- err }}
	if change != nil {
		change(&cfg)
	}
	target, err := sqlconn.New(hub, cfg)
	require.NoError(t, err)
	r.pool, err = reservoir.New(reservoir.Config[*sqlconn.Conn]{Open: target.Open, Close: target.Close, Check: target.Check, Reset: target.Reset, MaxSize: 1})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, r.pool.Close(ctx))
	})
	return r
}

// use borrows the connection for f, and tells which it was.
func (r *rig) use(f func(c *sql.Conn)) uint64 {
	loan, err := r.pool.Acquire(r.Context())
	require.NoError(r, err)
	c, err := loan.Value().Lend(r.Context())
	require.NoError(r, err)
	f(c)
	require.NoError(r, sqlconn.Return(r.Context(), c))
	require.NoError(r, loan.Release())
	return loan.Value().ID()
}

// admin is a connection beside the pool.
func (r *rig) admin() *sql.DB {
	db, err := sql.Open("mysql", r.server.DSN())
	require.NoError(r, err)
	r.Cleanup(func() { require.NoError(r, db.Close()) })
	return db
}

// asker is a *sql.Conn or a *sql.DB.
type asker interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (r *rig) ask(c asker, query string, args ...any) (answer string) {
	require.NoError(r, c.QueryRowContext(r.Context(), query, args...).Scan(&answer), query)
	return answer
}
