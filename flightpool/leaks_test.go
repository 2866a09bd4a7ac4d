package flightpool_test

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/adbcpool"
	"github.com/flightpool/flightpool/flightpool/sqldriver"
	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/testserver"
)

// forgetful calls take a connection and do not give it back. What they return does.
var forgetful = map[string]func(ctx context.Context, p *flightpool.FlightSQLPool) func(){
	"Query":            forgetQuery,
	"QueryWithOptions": forgetQueryWithOptions,
	"AcquireSession":   forgetSession,
	"PrepareQuery":     forgetPrepared,
	"BeginTx":          forgetTx,
	"InTx":             forgetInTx,
	"Ingest":           forgetIngest,
	"TableTypes":       forgetTables,
	"sql.DB.Query":     forgetRows,
	"sql.DB.Begin":     forgetSQLTx,
	"sql.DB.Conn":      forgetSQLConn,
	"sql.DB.Prepare":   forgetStmtRows,
	"ADBC":             forgetADBC,
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func forgetQuery(ctx context.Context, p *flightpool.FlightSQLPool) func() {
	return must(p.Query(ctx, "SELECT * FROM generate(100, 10)")).Release
}

func forgetQueryWithOptions(ctx context.Context, p *flightpool.FlightSQLPool) func() {
	return must(p.QueryWithOptions(ctx, "SELECT * FROM generate(100, 10)", flightpool.QueryOptions{Timeout: 24 * time.Hour})).Release
}

func forgetSession(ctx context.Context, p *flightpool.FlightSQLPool) func() {
	s := must(p.AcquireSession(ctx))
	return func() { _ = s.Close() }
}

func forgetPrepared(ctx context.Context, p *flightpool.FlightSQLPool) func() {
	s := must(p.AcquireSession(ctx))
	_ = must(s.PrepareQuery(ctx, "SELECT 1"))
	return func() { _ = s.Close() }
}

func forgetTx(ctx context.Context, p *flightpool.FlightSQLPool) func() {
	tx := must(p.BeginTx(ctx, flightpool.TxOptions{}))
	return func() { _ = tx.Rollback(ctx) }
}

// beside runs call, which stays within it until the returned function is called.
func beside(call func(stay func())) func() {
	entered, leave := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() { call(func() { close(entered); <-leave }) })
	<-entered
	return func() { close(leave); all.Wait() }
}

func forgetInTx(ctx context.Context, p *flightpool.FlightSQLPool) func() {
	return beside(func(stay func()) {
		_ = p.InTx(ctx, flightpool.TxOptions{}, func(context.Context, *flightpool.Tx) error { stay(); return nil })
	})
}

// slowReader is a reader of no rows that takes its time.
type slowReader struct {
	array.RecordReader
	stay func()
}

func (r *slowReader) Next() bool { r.stay(); return false }

func forgetIngest(ctx context.Context, p *flightpool.FlightSQLPool) func() {
	return beside(func(stay func()) {
		schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64}}, nil)
		empty := must(array.NewRecordReader(schema, nil))
		_, _ = p.Ingest(ctx, "t", &slowReader{empty, stay}, flightpool.IngestOptions{})
	})
}

func forgetTables(ctx context.Context, p *flightpool.FlightSQLPool) func() {
	return must(p.TableTypes(ctx)).Release
}

func openDB(p *flightpool.FlightSQLPool) *sql.DB { return sqldriver.OpenDB(p) }

func forgetRows(ctx context.Context, p *flightpool.FlightSQLPool) func() {
	db := openDB(p)
	rows := must(db.QueryContext(ctx, "SELECT * FROM generate(100, 10)"))
	return func() { _, _ = rows.Close(), db.Close() }
}

func forgetSQLTx(ctx context.Context, p *flightpool.FlightSQLPool) func() {
	db := openDB(p)
	tx := must(db.BeginTx(ctx, nil))
	return func() { _, _ = tx.Rollback(), db.Close() }
}

func forgetSQLConn(ctx context.Context, p *flightpool.FlightSQLPool) func() {
	db := openDB(p)
	conn := must(db.Conn(ctx))
	_ = must(conn.ExecContext(ctx, "SET a = 1"))
	return func() { _, _ = conn.Close(), db.Close() }
}

func forgetStmtRows(ctx context.Context, p *flightpool.FlightSQLPool) func() {
	db := openDB(p)
	stmt := must(db.PrepareContext(ctx, "SELECT * FROM generate(100, 10)"))
	rows := must(stmt.QueryContext(ctx))
	return func() { _, _, _ = rows.Close(), stmt.Close(), db.Close() }
}

func forgetADBC(ctx context.Context, p *flightpool.FlightSQLPool) func() {
	conn := must(adbcpool.Database(p).Open(ctx))
	stmt := must(conn.NewStatement())
	if err := stmt.SetSqlQuery("SELECT * FROM generate(100, 10)"); err != nil {
		panic(err)
	}
	rows, _, err := stmt.ExecuteQuery(ctx)
	if err != nil {
		panic(err)
	}
	return func() { rows.Release(); _, _ = stmt.Close(), conn.Close() }
}

// TestEveryForgottenConnectionIsFoundWithItsBorrower names the borrower, whichever way the
// connection was taken: the function of the user's that made the call, before anything else of
// the user's, with no frame of the library and none of database/sql before it.
func TestEveryForgottenConnectionIsFoundWithItsBorrower(t *testing.T) {
	for name, forget := range forgetful {
		for _, fresh := range []bool{false, true} { // an idle connection, or one that is opened for it
			t.Run(name+map[bool]string{true: ", opened for it"}[fresh], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server, err := testserver.Start(testserver.Options{Profile: testserver.Strict(), Listen: testserver.InMemory})
					require.NoError(t, err)
					defer func() { _ = server.Close() }()
					var leaks []reservoir.Leak
					cfg := flightpool.Config{MaxSize: 2, LeakAfter: time.Minute, Dialer: server.Dial, Hooks: flightpool.Hooks{Connections: reservoir.Hooks{Leaked: func(l reservoir.Leak) { leaks = append(leaks, l) }}}}
					if fresh {
						cfg.MinIdle = -1
					}
					p, err := flightpool.New(t.Context(), server.URI(), cfg)
					require.NoError(t, err)
					release := forget(t.Context(), p)
					time.Sleep(3 * time.Minute)
					synctest.Wait()
					release()
					require.NoError(t, p.Close(t.Context()))
					require.Len(t, leaks, 1)
					require.Regexp(t, `^github\.com/flightpool/flightpool/flightpool_test\.forget\w+`, leaks[0].Stack)
				})
			})
		}
	}
}
