package sqldriver_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/sqldriver"
	"github.com/flightpool/flightpool/testserver"
)

func start(t *testing.T) *testserver.Server {
	s, err := testserver.Start(testserver.Options{Profile: testserver.Strict()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// gone waits for the end of the last connection to s.
func gone(t *testing.T, s *testserver.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // a defect ends the test
	defer cancel()
	require.NoError(t, s.Ledger().Wait(ctx, func(now testserver.Snapshot) bool { return now.Conns == 0 && now.Sessions == 0 }))
}

func TestOpenMakesNoConnectionAndCloseEndsAll(t *testing.T) {
	s := start(t)
	db, err := sql.Open("flightpool", "grpc://"+s.Addr()+"?max_size=2")
	require.NoError(t, err)
	require.Zero(t, s.Ledger().Snapshot().ConnsOpened)
	require.Nil(t, sqldriver.Pool(db))
	require.NoError(t, db.PingContext(t.Context()))
	require.NotNil(t, sqldriver.Pool(db))
	require.NoError(t, db.Close())
	gone(t, s)
	require.Error(t, db.PingContext(t.Context()))
}

func TestANameThatIsWrongIsToldByOpenWithoutItsSecrets(t *testing.T) {
	for _, name := range []string{
		"grpc://ann:s3cret@host:1?no_such_option=1", "flightsql://ann:s3cret@host:1?max_size=many", "ann:s3cret@host", "mysql://ann:s3cret@h:1/x",
	} {
		_, err := sql.Open("flightpool", name)
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), "s3cret")
	}
}

// TestManyFirstCallersShareOnePool has them all come before there is one.
func TestManyFirstCallersShareOnePool(t *testing.T) {
	s := start(t)
	db, err := sql.Open("flightpool", "grpc://"+s.Addr()+"?max_size=2")
	require.NoError(t, err)
	var callers sync.WaitGroup
	for range 20 {
		callers.Go(func() {
			var v int64
			if err := db.QueryRowContext(t.Context(), "SELECT * FROM generate(1)").Scan(&v); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	require.LessOrEqual(t, s.Ledger().Snapshot().SessionsPeak, 2)
	require.NoError(t, db.Close())
	gone(t, s)
}

func TestStatsShowWhatIsOnLoan(t *testing.T) {
	s := start(t)
	db, err := sql.Open("flightpool", "grpc://"+s.Addr()+"?max_size=3")
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	var open []*sql.Rows
	for i := range 3 {
		rows, err := db.QueryContext(t.Context(), "SELECT * FROM generate(100000)")
		require.NoError(t, err)
		open = append(open, rows)
		require.Equal(t, i+1, db.Stats().InUse)
		require.Equal(t, i+1, sqldriver.Pool(db).Stats().InUse)
	}
	for _, rows := range open {
		require.NoError(t, rows.Close())
	}
	require.Zero(t, db.Stats().InUse)
	require.Zero(t, db.Stats().Idle, "those are the pool's")
	require.NoError(t, db.PingContext(t.Context()))
	require.Positive(t, sqldriver.Pool(db).Stats().Total)
}

// TestAPoolThatCannotBeMadeIsTriedAgain has no server at first.
func TestAPoolThatCannotBeMadeIsTriedAgain(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	db, err := sql.Open("flightpool", "grpc://"+addr+"?max_size=2")
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, db.PingContext(ctx), context.Canceled)
	require.Error(t, db.PingContext(t.Context()))
	require.Nil(t, sqldriver.Pool(db))

	s, err := testserver.Start(testserver.Options{Profile: testserver.Strict(), Listen: addr})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, db.PingContext(t.Context()))
}

func TestAConnectorThatIsClosedMakesNoPool(t *testing.T) {
	s := start(t)
	c, err := sqldriver.Driver{}.OpenConnector("grpc://" + s.Addr())
	require.NoError(t, err)
	require.NoError(t, c.(io.Closer).Close())
	_, err = c.Connect(t.Context())
	require.ErrorIs(t, err, flightpool.ErrClosed)
	require.Zero(t, s.Ledger().Snapshot().ConnsOpened)
}

// TestAConnectionOpenedByNameEndsItsPool is for those who go without database/sql.
func TestAConnectionOpenedByNameEndsItsPool(t *testing.T) {
	s := start(t)
	conn, err := sqldriver.Driver{}.Open("grpc://" + s.Addr())
	require.NoError(t, err)
	require.NoError(t, conn.(driver.Pinger).Ping(t.Context()))
	require.NoError(t, conn.Close())
	gone(t, s)
}

func TestADBOverAPoolLeavesItOpen(t *testing.T) {
	s := start(t)
	p, err := flightpool.New(t.Context(), "grpc://"+s.Addr(), flightpool.Config{MaxSize: 2})
	require.NoError(t, err)
	db := sqldriver.OpenDB(p)
	require.NoError(t, db.PingContext(t.Context()))
	require.Same(t, p, sqldriver.Pool(db))
	require.NoError(t, db.Close())
	require.NoError(t, p.Ping(t.Context()))
	require.NoError(t, p.Close(context.Background()))

	foreign := sql.OpenDB(other{})
	require.Nil(t, sqldriver.Pool(foreign))
	require.NoError(t, foreign.Close())
}

// other is the connector of another driver.
type other struct{}

func (other) Connect(context.Context) (driver.Conn, error) { return nil, driver.ErrBadConn }
func (other) Driver() driver.Driver                        { return nil }

// valuer counts the calls of its Value method.
type valuer struct{ calls *int }

func (v valuer) Value() (driver.Value, error) {
	*v.calls++
	return int64(*v.calls), nil
}

// A Value method may encrypt, or draw a number: what it returns first is what is sent.
func TestAValueMethodIsCalledOnce(t *testing.T) {
	s := start(t)
	db, err := sql.Open("flightpool", "grpc://"+s.Addr()+"?max_size=2")
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	st, err := db.PrepareContext(t.Context(), "SELECT ?")
	require.NoError(t, err)
	defer func() { require.NoError(t, st.Close()) }()
	calls := 0
	for i, run := range []func() error{
		func() error { return db.QueryRowContext(t.Context(), "SELECT ?", valuer{&calls}).Scan(new(any)) },
		func() error { _, err := db.ExecContext(t.Context(), "SELECT ?", valuer{&calls}); return err },
		func() error { return st.QueryRowContext(t.Context(), valuer{&calls}).Scan(new(any)) },
		func() error { return st.QueryRowContext(t.Context(), &valuer{&calls}).Scan(new(any)) },
	} {
		_ = run() // what the server makes of it does not matter here
		require.Equal(t, i+1, calls)
	}
}
