package flightpool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/testserver"
)

// colour is what OnConnect of these tests sets.
const colour = "SELECT current_setting('colour')"

func paint(ctx context.Context, s *SessionHandle) error {
	_, err := s.Update(ctx, "SET colour = 'blue'")
	return err
}

func TestOnConnectPreparesEachConnectionOnce(t *testing.T) {
	var calls atomic.Int64
	cfg := Config{MinIdle: 3, MaxSize: 3, OnConnect: func(ctx context.Context, s *SessionHandle) error {
		calls.Add(1)
		_, err := s.PrepareQuery(ctx, "SELECT 1") // closed with the session
		return errors.Join(err, paint(ctx, s))
	}}
	inBubble(t, testserver.Strict(), cfg, func(r *rig) {
		for range 3 {
			sessions := []*SessionHandle{r.session(), r.session(), r.session()}
			for _, s := range sessions {
				require.Equal(r, "blue", r.value(s, colour))
				_, err := s.Update(r.Context(), "SET colour = 'red'")
				require.NoError(r, err)
				require.NoError(r, s.Close())
			}
			require.Equal(r, "blue", r.value(r.pool, colour), "what the borrower has changed is put back")
			r.exec("SET colour = 'green'")
			require.Equal(r, "blue", r.value(r.pool, colour))
		}
		require.EqualValues(r, 3, calls.Load())
		require.EqualValues(r, 3, r.srv.Ledger().Snapshot().Prepared, "what a session proves itself by, and no statement of OnConnect")
		s := r.session()
		require.NoError(r, s.Discard(errors.New("its time has come")))
		time.Sleep(time.Second)
		require.EqualValues(r, 4, calls.Load(), "a connection that replaces another is prepared, too")
		for range 3 {
			s := r.session()
			defer func() { require.NoError(r, s.Close()) }()
			require.Equal(r, "blue", r.value(s, colour))
		}
	})
}

func TestOnConnectThatFailsLendsNothing(t *testing.T) {
	mine := errors.New("my own")
	for name, tc := range map[string]struct {
		do   func(context.Context, *SessionHandle) error
		says string
		is   error
	}{
		"its error":         {func(context.Context, *SessionHandle) error { return mine }, "OnConnect: my own", mine},
		"of the server":     {func(ctx context.Context, s *SessionHandle) error { _, err := s.Update(ctx, "SELEC 1"); return err }, "SELEC", nil},
		"closes its handle": {func(_ context.Context, s *SessionHandle) error { return s.Close() }, "", ErrHandleClosed},
		"a transaction":     {func(ctx context.Context, s *SessionHandle) error { return s.BeginTransaction(ctx) }, "", ErrTxOpen},
		"a result":          {func(ctx context.Context, s *SessionHandle) error { _, err := s.Query(ctx, "SELECT 1"); return err }, "result", ErrBusy},
		"panics":            {func(context.Context, *SessionHandle) error { panic("no") }, "no", nil},
		"Goexit":            {func(context.Context, *SessionHandle) error { runtime.Goexit(); return nil }, "goroutine", nil},
		"takes too long":    {func(ctx context.Context, _ *SessionHandle) error { <-ctx.Done(); return ctx.Err() }, "DialTimeout", nil},
	} {
		t.Run(name, func(t *testing.T) {
			withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
				_, err := New(t.Context(), "grpc://server:1", Config{Dialer: srv.Dial, OnConnect: func(ctx context.Context, s *SessionHandle) error {
					if err := paint(ctx, s); err != nil {
						return err
					}
					return tc.do(ctx, s)
				}})
				require.ErrorContains(t, err, tc.says)
				if tc.is != nil {
					require.ErrorIs(t, err, tc.is)
				}
				require.NoError(t, srv.Ledger().Wait(t.Context(), func(s testserver.Snapshot) bool { return s.Conns == 0 && s.Transactions == 0 }))
			})
		})
	}
}

// Also servers that replace sessions in silence are prepared, and those without prepared
// statements where nothing is left.
func TestOnConnectWhereItsSettingsCanGetLost(t *testing.T) {
	noPrepare := testserver.Strict()
	noPrepare.Refuse = map[string]codes.Code{"CreatePreparedStatement": codes.Unimplemented}
	withServer(t, testserver.Options{Profile: noPrepare}, func(t *testing.T, srv *testserver.Server) {
		_, err := New(t.Context(), "grpc://server:1", Config{Dialer: srv.Dial, OnConnect: paint})
		require.ErrorContains(t, err, "replaced the session")
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, FaultUnsupported, e.Fault)

		p, err := New(t.Context(), "grpc://server:1", Config{Dialer: srv.Dial, OnConnect: func(ctx context.Context, s *SessionHandle) error {
			_, err := firstValue(ctx, s, "SELECT 1")
			return err
		}})
		require.NoError(t, err, "what leaves nothing loses nothing")
		require.NoError(t, p.Close(t.Context()))
	})
}

// A server that replaces sessions in silence does not get a call into a new one.
// What OnConnect fails with by itself says nothing of the server, unlike what a call of it does.
func TestAnErrorOfOnConnectsOwnMakesNoServerUnhealthy(t *testing.T) {
	mine := errors.New("my own")
	for name, prepare := range map[string]func(context.Context, *SessionHandle) error{
		"its own":            func(context.Context, *SessionHandle) error { return mine },
		"beside a statement": func(ctx context.Context, s *SessionHandle) error { return errors.Join(paint(ctx, s), mine) },
		"too late":           func(ctx context.Context, _ *SessionHandle) error { <-ctx.Done(); return errors.Join(ctx.Err(), mine) },
	} {
		withServer(t, testserver.Options{Profile: testserver.Strict()}, func(t *testing.T, srv *testserver.Server) {
			p, err := New(t.Context(), "grpc://server:1", Config{MinIdle: -1, Dialer: srv.Dial, OnConnect: prepare})
			require.NoError(t, err)
			ctx, stop := context.WithTimeout(t.Context(), 25*time.Second)
			defer stop()
			began := time.Now()
			_, err = p.Query(ctx, "SELECT 1")
			require.ErrorIs(t, err, ErrExhausted, name)
			require.ErrorIs(t, err, mine, name)
			require.NotErrorIs(t, err, ErrUnhealthy, name)
			require.Equal(t, 25*time.Second, time.Since(began), "it waits as OpenRetry says, %s", name)
			require.NoError(t, p.Stats().UnhealthyReason, name)
			require.NoError(t, p.Close(t.Context()))
		})
	}
}

func TestOnConnectHoldsWhereTheServerReplacesSessions(t *testing.T) {
	for _, profile := range []testserver.Profile{testserver.Strict(), testserver.SwanLake()} {
		t.Run(profile.Name, func(t *testing.T) {
			cfg := Config{MinIdle: 3, MaxSize: 3, OnConnect: func(ctx context.Context, s *SessionHandle) error {
				_, err := s.Update(ctx, "CREATE TEMP TABLE mine (a BIGINT)")
				return errors.Join(err, paint(ctx, s))
			}}
			inBubble(t, profile, cfg, func(r *rig) {
				for n := range 6 {
					require.Equal(r, "blue", r.value(r.pool, colour))
					r.srv.Faults().EvictSessions()
					time.Sleep(time.Duration(1+n) * 5 * time.Second)
					if n%2 == 0 {
						require.Equal(r, "blue", r.value(r.pool, colour))
					}
					r.exec("INSERT INTO mine VALUES (1)")
				}
				s := r.session()
				defer func() { _ = s.Close() }() // it is lost
				require.Equal(r, "blue", r.value(s, colour))
				r.srv.Faults().EvictSessions()
				_, err := s.Update(r.Context(), "INSERT INTO mine VALUES (1)")
				require.ErrorIs(r, err, ErrSessionLost, "the session's borrower is told before anything is sent")
				time.Sleep(5 * time.Second)
				require.Equal(r, "blue", r.value(r.pool, colour))

				s2 := r.session()
				defer func() { _ = s2.Close() }() // it is lost
				r.srv.Faults().EvictSessions()
				time.Sleep(5 * time.Second)
				_, err = firstValue(r.Context(), s2, colour)
				require.ErrorIs(r, err, ErrSessionLost, "also before a read, after a pause")
			})
		})
	}
}

// What OnConnect has left to be done on the server by its last call is waited for.
func TestOnConnectWhoseLastCallEndsBehindIt(t *testing.T) {
	for name, last := range map[string]func(context.Context, *SessionHandle) error{
		"its own prepared statement": func(ctx context.Context, s *SessionHandle) error {
			_, err := s.Update(ctx, "INSERT INTO mine VALUES (?)", 1)
			return err
		},
		"one row": func(ctx context.Context, s *SessionHandle) error {
			return s.QueryRow(ctx, "SELECT 1").Scan(new(int64))
		},
		"a cancel": func(ctx context.Context, s *SessionHandle) error {
			short, stop := context.WithTimeout(ctx, 100*ms)
			defer stop()
			_, err := s.Query(short, "SELECT sleep('1h')")
			if errors.Is(err, context.DeadlineExceeded) {
				return nil
			}
			return fmt.Errorf("no deadline: %w", err)
		},
		"a rollback": func(ctx context.Context, s *SessionHandle) error {
			gone, stop := context.WithCancel(ctx)
			defer stop()
			err := s.WithTransaction(gone, func(context.Context, *SessionHandle) error {
				stop()
				return context.Canceled
			})
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return fmt.Errorf("not cancelled: %w", err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{MinIdle: 1, MaxSize: 1, OnConnect: func(ctx context.Context, s *SessionHandle) error {
				_, err := s.Update(ctx, "CREATE TEMP TABLE mine (a BIGINT)")
				return cmp.Or(err, paint(ctx, s), last(ctx, s))
			}}
			inBubble(t, testserver.Strict(), cfg, func(r *rig) {
				require.Equal(r, "blue", r.value(r.pool, colour))
				require.EqualValues(r, 1, r.pool.Stats().Opens)
			})
		})
	}
	withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
		_, err := New(t.Context(), "grpc://server:1", Config{Dialer: srv.Dial, Cancel: CancelPolicy{Budget: time.Hour}, OnConnect: func(ctx context.Context, s *SessionHandle) error {
			srv.Faults().Set(testserver.Fault{On: testserver.OnCancel, Do: testserver.Hang()})
			srv.Faults().Set(testserver.Fault{On: testserver.OnGetFlightInfo, SQL: "SELECT 1", Do: testserver.Hang()})
			short, stop := context.WithTimeout(ctx, 100*ms)
			defer stop()
			_, _ = s.Query(short, "SELECT sleep('1h')")
			return nil
		}})
		require.ErrorContains(t, err, "DialTimeout", "no longer than that")
	})
}

// A transaction runs in a prepared session, on servers of both kinds: those that want the
// transaction's id with each statement, with which no proof can be asked for, and others.
func TestOnConnectAndTransactions(t *testing.T) {
	for _, profile := range []testserver.Profile{testserver.Strict(), testserver.SwanLake(), testserver.GizmoSQL()} {
		t.Run(profile.Name, func(t *testing.T) {
			inBubble(t, profile, Config{MinIdle: 1, MaxSize: 1, Auth: BasicAuth("user", "password"), OnConnect: paint}, func(r *rig) {
				r.exec("CREATE TABLE t (a BIGINT)")
				for range 2 {
					require.NoError(r, r.pool.InTx(r.Context(), TxOptions{}, func(ctx context.Context, tx *Tx) error {
						_, err := tx.Update(ctx, "INSERT INTO t VALUES (1)")
						time.Sleep(6 * time.Second)
						require.Equal(r, "blue", r.value(tx, colour))
						if point := tx.Savepoint(ctx, "a"); point == nil { // else there are none
							err = cmp.Or(err, tx.RollbackTo(ctx, "a"))
						}
						return err
					}))
				}
				require.Equal(r, "2", r.value(r.pool, "SELECT count(*) FROM t"))
				require.EqualValues(r, 1, r.pool.Stats().Opens)

				tx := r.begin()
				defer func() { _ = tx.Rollback(r.Context()) }() // its session is lost
				_, err := tx.Update(r.Context(), "INSERT INTO t VALUES (1)")
				require.NoError(r, err)
				r.srv.Faults().EvictSessions()
				_, err = tx.Update(r.Context(), "INSERT INTO t VALUES (2)")
				require.Error(r, err)
				require.Error(r, tx.Commit(r.Context()))
				time.Sleep(5 * time.Second)
				require.Equal(r, "2", r.value(r.pool, "SELECT count(*) FROM t"))
				require.Equal(r, "blue", r.value(r.pool, colour))
			})
		})
	}
}

// A caller who leaves while a session is asked for its proof costs no connection.
func TestOnConnectProofThatNobodyWaitsFor(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MinIdle: 1, MaxSize: 1, OnConnect: paint}, func(r *rig) {
		r.srv.Faults().Set(testserver.Fault{On: testserver.OnGetFlightInfo, Do: testserver.Delay(300 * ms)})
		for range 3 {
			time.Sleep(6 * time.Second)
			r.cancelled(r.pool, colour, 100*ms)
			require.Equal(r, "blue", r.value(r.pool, colour), "the next waits for the same connection")
		}
		require.EqualValues(r, 1, r.pool.Stats().Opens)
	})
}

// A change right after the sessions were replaced finds each connection's out.
func TestOnConnectChangeAfterAllSessionsWereReplaced(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MinIdle: 3, MaxSize: 3, OnConnect: paint}, func(r *rig) {
		require.NoError(r, r.pool.WaitReady(r.Context(), 3))
		r.exec("CREATE TABLE t (a BIGINT)")
		r.srv.Faults().EvictSessions()
		r.exec("INSERT INTO t VALUES (1)")
		require.Equal(r, "1", r.value(r.pool, "SELECT count(*) FROM t"))
		require.Equal(r, 1, r.executions("INSERT INTO t VALUES (1)"))
	})
}

// Under each way of cleaning a session, what OnConnect has left is no dirt of its own.
func TestOnConnectUnderEachReset(t *testing.T) {
	for name, reset := range map[string]SessionReset{"auto": ResetAuto, "none": ResetNone, "sql": ResetSQL("SELECT 1"), "discard": ResetDiscard} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int64
			cfg := Config{MaxSize: 1, OnReturn: reset, OnConnect: func(ctx context.Context, s *SessionHandle) error {
				calls.Add(1)
				return paint(ctx, s)
			}}
			inBubble(t, testserver.Strict(), cfg, func(r *rig) {
				for range 3 {
					require.Equal(r, "blue", r.value(r.pool, colour))
				}
				require.EqualValues(r, 1, calls.Load(), "a plain read is no use of a session")
			})
		})
	}
}

// Random calls beside evictions, lost connections and sleeps: no call changes anything, and
// none reads after a pause, in a session without what OnConnect has left.
func TestOnConnectUnderRandomCalls(t *testing.T) {
	programs := uint64(12)
	if os.Getenv("STRESS") != "" {
		programs = 3000
	}
	for seed := range programs {
		profile := []testserver.Profile{testserver.Strict(), testserver.SwanLake(), testserver.ClickHouse(), testserver.Dremio()}[seed%4]
		reset := []SessionReset{ResetAuto, ResetAuto, ResetDiscard, ResetNone}[seed/4%4]
		cfg := Config{MinIdle: 1, MaxSize: 3, OnReturn: reset, SessionHeader: "x-clickhouse-session-id", OnConnect: func(ctx context.Context, s *SessionHandle) error {
			_, err := s.Update(ctx, "CREATE TEMP TABLE mine (a BIGINT)")
			return errors.Join(err, paint(ctx, s))
		}}
		inBubble(t, profile, cfg, func(r *rig) {
			rng := rand.New(rand.NewPCG(seed, 1))
			lost := time.Time{} // when sessions were last replaced
			calm := seed%8 < 4  // no session or connection is lost
			read := func(q querier) {
				v, err := firstValue(r.Context(), q, colour)
				if err == nil && v != "blue" && time.Since(lost) >= 5*time.Second {
					r.Errorf("seed %d on %s: a read answers %q", seed, profile.Name, v)
				}
			}
			change := func(q Querier) {
				if _, err := q.Update(r.Context(), "INSERT INTO mine VALUES (1)"); err != nil && strings.Contains(err.Error(), "mine") {
					r.Errorf("seed %d on %s: a change: %v", seed, profile.Name, err)
				}
			}
			for range 30 {
				what := rng.IntN(9)
				if calm {
					what = max(what, 2)
				}
				switch what {
				case 0:
					lost = time.Now()
					r.srv.Faults().EvictSessions()
				case 1:
					r.srv.Faults().KillConns()
				case 2:
					time.Sleep(time.Duration(rng.IntN(20)) * time.Second)
				case 3, 4:
					read(r.pool)
				case 5:
					change(r.pool)
				case 6:
					ctx, stop := context.WithTimeout(r.Context(), time.Duration(rng.IntN(100))*ms)
					_, _ = r.pool.Update(ctx, "INSERT INTO mine VALUES (2)")
					stop()
				case 7:
					err := r.pool.InTx(r.Context(), TxOptions{}, func(_ context.Context, tx *Tx) error {
						read(tx)
						time.Sleep(time.Duration(rng.IntN(8)) * time.Second)
						change(tx)
						return nil
					})
					if calm && err != nil && faultIn(err) != FaultUnsupported {
						r.Errorf("seed %d on %s: a transaction: %v", seed, profile.Name, err)
					}
				case 8:
					s, err := r.pool.AcquireSession(r.Context())
					if err != nil {
						continue
					}
					if rng.IntN(2) == 0 {
						_, _ = s.Update(r.Context(), "SET colour = 'blue'") // also puts it back
					}
					change(s)
					if rng.IntN(3) == 0 && !calm {
						lost = time.Now()
						r.srv.Faults().EvictSessions()
					}
					time.Sleep(time.Duration(rng.IntN(8)) * time.Second)
					read(s)
					_ = s.Close() // it may be lost
				}
			}
		})
	}
}

// What OnConnect leaves undone leaves no transaction on a server that keeps those of
// sessions whose connection has gone.
func TestOnConnectThatFailsInATransaction(t *testing.T) {
	insert := func(ctx context.Context, s *SessionHandle) error {
		_, err := s.Update(ctx, "CREATE TEMP TABLE mine (a BIGINT)")
		return err
	}
	for name, end := range map[string]func(context.Context, *SessionHandle) error{
		"error":   func(context.Context, *SessionHandle) error { return errors.New("no") },
		"success": func(context.Context, *SessionHandle) error { return nil },
		"panic":   func(context.Context, *SessionHandle) error { panic("no") },
		"Goexit":  func(context.Context, *SessionHandle) error { runtime.Goexit(); return nil },
		"late":    func(ctx context.Context, _ *SessionHandle) error { <-ctx.Done(); return ctx.Err() },
		"a result": func(ctx context.Context, s *SessionHandle) error {
			_, err := s.Query(ctx, "SELECT * FROM generate(100000)")
			return err
		},
		"a call of another goroutine": func(ctx context.Context, s *SessionHandle) error {
			go func() { _ = drained(s.Query(ctx, "SELECT sleep('1s')")) }()
			time.Sleep(100 * ms)
			return nil
		},
		"closed": func(ctx context.Context, s *SessionHandle) error { return s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			withServer(t, testserver.Options{Profile: testserver.SwanLake()}, func(t *testing.T, srv *testserver.Server) {
				_, err := New(t.Context(), "grpc://server:1", Config{Dialer: srv.Dial, OnConnect: func(ctx context.Context, s *SessionHandle) error {
					return cmp.Or(s.BeginTransaction(ctx), insert(ctx, s), end(ctx, s))
				}})
				require.Error(t, err)
				time.Sleep(time.Minute) // a session lives for longer
				require.Zero(t, srv.Ledger().Snapshot().Transactions)
			})
		})
	}
}

// Whatever OnConnect does with the pool itself is bounded by its context.
func TestOnConnectThatUsesItsPool(t *testing.T) {
	for name, use := range map[string]func(context.Context, *FlightSQLPool) error{
		"Query":          func(ctx context.Context, p *FlightSQLPool) error { return drained(p.Query(ctx, "SELECT 1")) },
		"AcquireSession": func(ctx context.Context, p *FlightSQLPool) error { _, err := p.AcquireSession(ctx); return err },
		"WaitReady":      func(ctx context.Context, p *FlightSQLPool) error { return p.WaitReady(ctx, 2) },
		"Close":          func(ctx context.Context, p *FlightSQLPool) error { return p.Close(ctx) },
		"Reset":          func(_ context.Context, p *FlightSQLPool) error { p.Reset(); return nil },
		"Resize":         func(_ context.Context, p *FlightSQLPool) error { return p.Resize(3) },
		"Stats": func(_ context.Context, p *FlightSQLPool) error {
			p.EvictIdle()
			p.Connections()
			_ = p.Stats()
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			var pool atomic.Pointer[FlightSQLPool]
			uses := atomic.Int64{}
			cfg := Config{MinIdle: 1, MaxSize: 2, OnConnect: func(ctx context.Context, s *SessionHandle) error {
				if p := pool.Load(); p != nil && uses.Add(1) < 4 {
					return cmp.Or(use(ctx, p), paint(ctx, s))
				}
				return paint(ctx, s)
			}}
			inBubble(t, testserver.Strict(), cfg, func(r *rig) {
				pool.Store(r.pool)
				first := r.session()
				began := time.Now()
				v, err := firstValue(r.Context(), r.pool, colour) // needs a connection more
				require.NoError(r, first.Close())
				if name == "Close" {
					return
				}
				require.NoError(r, err)
				require.Equal(r, "blue", v)
				require.LessOrEqual(r, time.Since(began), 16*time.Second, "three times DialTimeout")
			})
		})
	}
}

// The handle of OnConnect is of no use when OnConnect is over, whoever has it.
func TestOnConnectThatKeepsItsHandle(t *testing.T) {
	var kept []*SessionHandle
	var prepared []*PreparedQuery
	cfg := Config{MinIdle: 1, MaxSize: 1, OnConnect: func(ctx context.Context, s *SessionHandle) error {
		q, err := s.PrepareQuery(ctx, "SELECT 1")
		kept, prepared = append(kept, s), append(prepared, q)
		return cmp.Or(err, paint(ctx, s))
	}}
	inBubble(t, testserver.Strict(), cfg, func(r *rig) {
		for range 2 {
			s := r.session()
			_, err := kept[0].Update(r.Context(), "SET colour = 'red'")
			require.ErrorIs(r, err, ErrHandleClosed)
			require.ErrorIs(r, kept[0].BeginTransaction(r.Context()), ErrHandleClosed)
			_, err = prepared[0].Query(r.Context())
			require.ErrorIs(r, err, ErrHandleClosed)
			require.NoError(r, prepared[0].Close(r.Context()))
			_ = kept[0].Discard(errors.New("not yours"))
			require.NoError(r, kept[0].Close())
			require.Equal(r, "blue", r.value(s, colour))
			require.NoError(r, s.Close())
		}
		require.EqualValues(r, 1, r.pool.Stats().Opens)
	})
}

// valueLayer wraps connections in values that cannot be compared.
type valueLayer struct{ closed int }

type valueConn struct {
	backend.Conn
	onClose func()
}

func (c valueConn) Close() error {
	c.onClose()
	return c.Conn.Close()
}

func (l *valueLayer) Wrap(_ context.Context, c backend.Conn) (backend.Conn, error) {
	return valueConn{c, func() { l.closed++ }}, nil
}

func (l *valueLayer) Close() error { return nil }

// A prepared session is known by its connection, so that the connection must be one that
// can be known.
func TestOnConnectOfConnectionsThatCannotBeTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory})
		require.NoError(t, err)
		defer func() { require.NoError(t, srv.Close()) }()
		layer := &valueLayer{}
		_, err = New(t.Context(), "grpc://server:1", Config{Dialer: srv.Dial, Layer: layer, OnConnect: paint})
		require.ErrorContains(t, err, "make it a pointer")
		require.Equal(t, FaultUsage, backend.FaultIn(err))
		require.Equal(t, 1, layer.closed)
	})
}
