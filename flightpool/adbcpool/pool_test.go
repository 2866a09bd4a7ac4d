package adbcpool

import (
	"context"
	"errors"
	"os"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

func TestAPoolOverADeadServerSaysSo(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			inBubble(t, testserver.Strict(), func(r rig) {
				require.NoError(r, r.server.Close())
				_, err := r.tryPool(kind, func(cfg *flightpool.Config) { cfg.AcquireTimeout = time.Second })
				var e *flightpool.Error
				require.ErrorAs(r, err, &e)
				require.Equal(r, flightpool.FaultTransport, e.Fault)
			})
		})
	}
}

func TestNewNamesTheFieldsThatAreTheDatabasesOwn(t *testing.T) {
	_, err := New(t.Context(), nil, flightpool.Config{Auth: flightpool.BearerAuth("x"), Headers: metadata.MD{}, MaxMessage: 1})
	for _, field := range []string{"db:", "Auth:", "Headers:", "MaxMessage:"} {
		require.ErrorContains(t, err, field)
	}
	_, err = Open(t.Context(), "grpc://127.0.0.1:1", flightpool.Config{Layer: stubLayer{}})
	require.ErrorContains(t, err, "Layer:")
}

type stubLayer struct{ flightpool.Layer }

// TestACutTransactionIsLostAndNothingReachesTheNewPeer cuts every transport
// without a word while a transaction is open. The server's ledger is the
// witness of what has reached the sessions that came after.
func TestACutTransactionIsLostAndNothingReachesTheNewPeer(t *testing.T) {
	const insert = "INSERT INTO t VALUES (1)"
	next := map[string]func(r rig, s *flightpool.SessionHandle) error{
		"a change": func(r rig, s *flightpool.SessionHandle) error { _, err := s.Update(r.Context(), insert); return err },
		"a query": func(r rig, s *flightpool.SessionHandle) error {
			_, err := s.Query(r.Context(), generate(1))
			return err
		},
		"a commit": func(r rig, s *flightpool.SessionHandle) error { return s.Commit(r.Context()) },
		"a prepared change": func(r rig, s *flightpool.SessionHandle) error {
			_, err := s.PrepareQuery(r.Context(), insert)
			return err
		},
	}
	for _, profile := range []testserver.Profile{testserver.Strict(), testserver.SwanLake()} {
		for _, kind := range kinds {
			for name, call := range next {
				lost := func(t *testing.T, used bool) {
					inBubble(t, profile, func(r rig) {
						p := r.pool(kind, func(cfg *flightpool.Config) { cfg.MinIdle = -1 }) // nobody else speaks
						s, err := p.AcquireSession(r.Context())
						require.NoError(r, err)
						defer func() { _ = s.Close() }()
						_, err = s.Update(r.Context(), "CREATE TABLE t (v BIGINT)")
						require.NoError(r, err)
						require.NoError(r, s.BeginTransaction(r.Context()))
						if used {
							_, err = s.Update(r.Context(), "INSERT INTO t VALUES (0)")
							require.NoError(r, err)
						}
						seen := r.server.Ledger().Snapshot().Executed
						r.server.Faults().KillConns()
						synctest.Wait() // a driver that dials again does so with its next call
						err = call(r, s)
						require.ErrorIs(r, err, flightpool.ErrSessionLost)
						require.NotErrorIs(r, err, flightpool.ErrCommitUnknown, "nothing was committed")
						for range 2 {
							_, err = s.Update(r.Context(), insert)
							require.ErrorIs(r, err, flightpool.ErrSessionLost)
							require.ErrorIs(r, s.Commit(r.Context()), flightpool.ErrSessionLost)
							require.ErrorIs(r, s.Rollback(r.Context()), flightpool.ErrSessionLost)
						}
						for _, st := range r.server.Ledger().Statements()[seen:] {
							if st.Kind == testserver.KindQuery && profile.Run == testserver.RunInBoth {
								continue // to prepare a read is to run it there
							}
							require.Equal(r, "ROLLBACK", st.SQL, "by the server, for the session that has ended")
						}
						r.server.Faults().EvictSessions() // what the lost session still holds is the server's affair
					})
				}
				t.Run(profile.Name+" "+kind+" "+name, func(t *testing.T) { lost(t, true) })
				t.Run(profile.Name+" "+kind+" "+name+" right behind the begin", func(t *testing.T) { lost(t, false) })
			}
		}
	}
}

func TestTransactionsOfTheForeignDriverCommitAndRollBack(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			inBubble(t, testserver.Strict(), func(r rig) {
				p := r.pool(kind)
				r.update(p, "CREATE TABLE t (v BIGINT)")
				s, err := p.AcquireSession(r.Context())
				require.NoError(r, err)
				insert := func(ctx context.Context, s *flightpool.SessionHandle) error {
					_, err := s.Update(ctx, "INSERT INTO t VALUES (1)")
					return err
				}
				require.NoError(r, s.WithTransaction(r.Context(), insert))
				stop := errors.New("stop")
				require.ErrorIs(r, s.WithTransaction(r.Context(), func(ctx context.Context, s *flightpool.SessionHandle) error {
					return errors.Join(insert(ctx, s), stop)
				}), stop)
				require.NoError(r, s.BeginTransaction(r.Context()))
				require.NoError(r, insert(r.Context(), s))
				require.NoError(r, s.Close(), "what was left open is rolled back")
				require.EqualValues(r, 1, r.count(p, "t"))
				require.Zero(r, r.server.Ledger().Snapshot().Transactions)
			})
		})
	}
}

func (r rig) count(p *flightpool.FlightSQLPool, table string) int64 {
	r.Helper()
	rows, err := p.Query(r.Context(), "SELECT count(*) FROM "+table)
	require.NoError(r, err)
	var n int64
	for rows.Next() {
		n = rows.RecordBatch().Column(0).(*array.Int64).Value(0)
	}
	require.NoError(r, rows.Err())
	return n
}

// TestManyPoolsLeaveNothingBehind runs over real sockets, which the
// kernel counts.
func TestManyPoolsLeaveNothingBehind(t *testing.T) {
	const many = 100
	s, err := testserver.Start(testserver.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	db, err := driverAt(s.Addr())
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	cycle := func(kind string, whole bool) {
		var p *flightpool.FlightSQLPool
		var err error
		switch kind {
		case "native":
			p, err = flightpool.New(t.Context(), s.URI(), flightpool.Config{})
		case "open":
			p, err = Open(t.Context(), s.URI(), flightpool.Config{})
		default:
			p, err = New(t.Context(), db, flightpool.Config{})
		}
		require.NoError(t, err)
		rows, err := p.Query(t.Context(), generate(10))
		require.NoError(t, err)
		for whole && rows.Next() {
			continue
		}
		rows.Release()
		require.NoError(t, p.Close(t.Context()))
	}
	for _, kind := range kinds {
		cycle(kind, true) // what is made once in a process
		goroutines, files := runtime.NumGoroutine(), openFiles(t)
		before := s.Ledger().Snapshot()
		for i := range many {
			cycle(kind, i%10 > 0) // every tenth result is given up
		}
		require.GreaterOrEqual(t, s.Ledger().Snapshot().SessionsOpened, before.SessionsOpened+many)
		require.NoError(t, s.Ledger().Wait(t.Context(), func(now testserver.Snapshot) bool { return now.Conns == 0 && now.Sessions == 0 }))
		require.LessOrEqual(t, openFiles(t), files, kind)
		// A leak is one of each pool, or of each tenth. A few of gRPC's may be
		// ending, client's and server's: its Close does not wait for them. At the
		// end of the package TestMain looks for a single one.
		require.Less(t, runtime.NumGoroutine(), goroutines+many/10, kind)
	}
}

// openFiles counts the file descriptors of this process.
func openFiles(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

// appliesToNew are the fields of Config that New carries out; the others it refuses.
var appliesToNew = []string{
	"MinIdle", "MaxSize", "AcquireTimeout", "DialTimeout", "CloseTimeout", "IdleTTL", "MaxLifetime", "LifetimeJitter", "GuardWindow",
	"DefaultQueryTimeout", "DisableRetry", "HealthCheck", "OnExhausted", "MaxWaiters", "OpenRetry", "OnReturn", "Cancel", "MaxConcurrentOpens",
	"Leases", "Limiter", "OnConnect", "LeakAfter", "Tracer", "Hooks", "Logger",
}

// A field that says nothing to anybody was taken in silence: SessionHeader, by which each connection has a session
// of its own.
func TestNewRefusesEveryFieldThatWouldBeIgnored(t *testing.T) {
	for i := range reflect.TypeFor[flightpool.Config]().NumField() {
		field := reflect.TypeFor[flightpool.Config]().Field(i).Name
		if slices.Contains(appliesToNew, field) {
			continue
		}
		var cfg flightpool.Config
		switch v := reflect.ValueOf(&cfg).Elem().Field(i); v.Kind() {
		case reflect.String:
			v.SetString("x")
		case reflect.Int:
			v.SetInt(1)
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
		case reflect.Map:
			v.Set(reflect.MakeMap(v.Type()))
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		case reflect.Func:
			v.Set(reflect.MakeFunc(v.Type(), nil))
		default:
			cfg.Auth, cfg.Allocator, cfg.Layer = flightpool.BearerAuth("x"), memory.DefaultAllocator, stubLayer{}
		}
		_, err := New(t.Context(), nil, cfg)
		require.ErrorContains(t, err, field+": is the database's own")
	}
}
