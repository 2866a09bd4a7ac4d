package adbcconn

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/session"
	"github.com/flightpool/flightpool/testserver"
)

// cutter cuts the transports right before the RPCs of the given numbers, so
// that the driver finds nobody and dials again.
type cutter struct {
	server server
	armed  atomic.Bool
	next   int
	at     map[int]bool
}

func (c *cutter) before() {
	if !c.armed.Load() {
		return
	}
	if c.at[c.next] {
		c.server.Faults().KillConns()
		synctest.Wait()
	}
	c.next++
}

func (c *cutter) options() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithContextDialer(c.server.Dial),
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			c.before()
			return invoker(ctx, method, req, reply, cc, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			c.before()
			return streamer(ctx, desc, cc, method, opts...)
		}),
	}
}

// story is a transaction with a call of each kind in it. It returns what its
// commit answered.
func story(ctx context.Context, s *session.SessionHandle) error {
	const insert = "INSERT INTO t VALUES (?)"
	before, err := s.PrepareQuery(ctx, insert)
	if err != nil {
		return err
	}
	if err := s.BeginTransaction(ctx); err != nil {
		return err
	}
	batch := int64s(1)
	defer batch.Release()
	steps := []func() error{
		func() error { _, err := s.Update(ctx, "INSERT INTO t VALUES (1)"); return err },
		func() error { _, err := before.Update(ctx, batch); return err },
		func() error { _, err := s.UpdateWithRecordBatch(ctx, insert, batch); return err },
		func() error {
			within, err := s.PrepareQuery(ctx, insert)
			if err != nil {
				return err
			}
			_, err = within.Update(ctx, batch)
			return errors.Join(err, within.Close(ctx))
		},
		func() error {
			rows, err := s.Query(ctx, "SELECT count(*) FROM t")
			if err != nil {
				return err
			}
			_, err = rows.ReadAll(ctx)
			return err
		},
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return s.Commit(ctx)
}

// TestNothingOfATransactionIsAppliedElsewhereWhereverTheDriverDialsAgain cuts
// the transport before each single RPC of a transaction in turn, and before
// each pair of neighbours, without a word to the driver, which dials again and
// goes on. The server's ledger is the witness.
func TestNothingOfATransactionIsAppliedElsewhereWhereverTheDriverDialsAgain(t *testing.T) {
	for _, profile := range []testserver.Profile{testserver.Strict(), swanLake()} {
		t.Run(profile.Name, func(t *testing.T) {
			outcomes := map[string]int{}
			for at, all := 0, false; !all; at++ {
				for _, cuts := range [][]int{{at}, {at, at + 1}} {
					synctest.Test(t, func(t *testing.T) {
						s := startServer(t, profile)
						c := &cutter{server: s, at: map[int]bool{}}
						for _, n := range cuts {
							c.at[n] = true
						}
						conn, err := openForeign(flightDatabase(t, "127.0.0.1:1", c.options()...))(t.Context())
						require.NoError(t, err)
						defer func() { _ = conn.Close() }()
						_, err = conn.Update(t.Context(), "CREATE TABLE t (v BIGINT)", backend.Call{})
						require.NoError(t, err)
						h := session.New(conn, &session.Policy{OwnerContext: t.Context()}, func(error) {})
						c.armed.Store(true)
						err = story(t.Context(), h)
						c.armed.Store(false)
						name := fmt.Sprintf("cut before %v", cuts)
						judge(t, s, err, name)
						outcomes[outcome(err)]++
						all = c.next <= at
						_ = h.Close()
						s.Faults().EvictSessions()
						synctest.Wait()
					})
				}
			}
			t.Log(outcomes)
			for _, want := range []string{"committed", "lost", "unknown"} {
				require.Positive(t, outcomes[want], outcomes)
			}
		})
	}
}

func outcome(err error) string {
	switch {
	case err == nil:
		return "committed"
	case errors.Is(err, backend.ErrCommitUnknown):
		return "unknown"
	case errors.Is(err, backend.ErrSessionLost):
		return "lost"
	default:
		return "failed: " + err.Error()
	}
}

// judge checks what the transaction claims against what the server has seen.
func judge(t *testing.T, s server, err error, name string) {
	t.Helper()
	type place struct {
		session int
		tx      string
	}
	began, committed, stored := 0, map[place]bool{}, map[place]int{}
	for _, st := range s.Ledger().Statements() {
		switch {
		case st.Kind == testserver.KindBegin && began == 0:
			began = st.Session // the driver begins further ones by itself
		case st.Kind == testserver.KindCommit && st.State == testserver.Done:
			committed[place{st.Session, st.Tx}] = true
		case st.SQL == "INSERT INTO t VALUES (1)" || st.SQL == "INSERT INTO t VALUES (?)":
			require.Equal(t, began, st.Session, "%s: an insert has reached another session: %v", name, err)
			stored[place{st.Session, st.Tx}]++
		}
	}
	require.LessOrEqual(t, len(stored), 1, name)
	complete := false
	for at, inserts := range stored {
		complete = inserts == 4 && committed[at]
		require.True(t, complete || !committed[at], "%s: a part is stored", name)
	}
	switch {
	case err == nil:
		require.True(t, complete, "%s: nothing of what was confirmed is stored", name)
	case complete:
		require.ErrorIs(t, err, backend.ErrCommitUnknown, "%s: it is stored", name)
	default:
		require.ErrorIs(t, err, backend.ErrSessionLost, name)
	}
}

// TestNoTransactionBeginsInASessionThatWasNotRecognised cuts the transport before each
// RPC from the begin on: what the transaction does is done in the session that has shown
// itself, or not at all.
func TestNoTransactionBeginsInASessionThatWasNotRecognised(t *testing.T) {
	ran := map[bool]int{}
	for at, all := 0, false; !all; at++ {
		synctest.Test(t, func(t *testing.T) {
			s := startServer(t, swanLake())
			c := &cutter{server: s, at: map[int]bool{at: true}}
			opened, err := openForeign(flightDatabase(t, "127.0.0.1:1", c.options()...))(t.Context())
			require.NoError(t, err)
			defer func() { _ = opened.Close() }()
			conn := opened.(backend.TxWatcher)
			_, err = opened.Update(t.Context(), "CREATE TABLE t (v BIGINT)", backend.Call{})
			require.NoError(t, err)
			own, err := opened.Prepare(t.Context(), "SELECT 'own'", backend.Call{})
			require.NoError(t, err)
			c.armed.Store(true)
			tx, err := conn.BeginProven(t.Context(), showsItself(own))
			if err == nil {
				_, err = opened.Update(t.Context(), "INSERT INTO t VALUES (1)", backend.Call{Tx: tx})
			}
			c.armed.Store(false)
			for _, st := range s.Ledger().Statements() {
				require.True(t, st.Session == 1 || st.SQL != "INSERT INTO t VALUES (1)", "cut before %d: %v", at, err)
			}
			ran[err == nil]++
			all = c.next <= at
			_ = opened.Close()
			s.Faults().EvictSessions()
			synctest.Wait()
		})
	}
	require.Equal(t, 1, ran[true], "without a cut: %v", ran)
	require.Greater(t, ran[false], 5)
}

// TestNoUpdateRunsInASessionThatWasNotRecognised cuts the transport before each RPC of an
// update that is to run in the session which has shown itself. The server may answer it by a
// failure when it has done it.
func TestNoUpdateRunsInASessionThatWasNotRecognised(t *testing.T) {
	const insert, bound = "INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (?)"
	refused := testserver.Fault{On: testserver.OnDoPut, After: true, SQL: "INSERT", Do: testserver.Fail(codes.Internal, "no answer of the disk")}
	for sql, update := range map[string]func(context.Context, backend.Conn, backend.Call) error{
		insert: func(ctx context.Context, c backend.Conn, call backend.Call) error {
			_, err := c.Update(ctx, insert, call)
			return err
		},
		bound: func(ctx context.Context, c backend.Conn, call backend.Call) error {
			stmt, err := c.Prepare(ctx, bound, call)
			if err != nil {
				return err
			}
			row := int64s(1)
			defer row.Release()
			_, err = stmt.Update(ctx, row, call)
			return errors.Join(err, stmt.Close(ctx))
		},
	} {
		ran := map[bool]int{}
		for at, done := 0, 0; done < 2; at++ {
			synctest.Test(t, func(t *testing.T) {
				s := startServer(t, swanLake())
				if at%2 > 0 {
					s.Faults().Set(refused)
				}
				c := &cutter{server: s, at: map[int]bool{at / 2: true}}
				conn, err := openForeign(flightDatabase(t, "127.0.0.1:1", c.options()...))(t.Context())
				require.NoError(t, err)
				defer func() { _ = conn.Close() }()
				_, err = conn.Update(t.Context(), "CREATE TABLE t (v BIGINT)", backend.Call{})
				require.NoError(t, err)
				own, err := conn.Prepare(t.Context(), "SELECT 'own'", backend.Call{})
				require.NoError(t, err)
				c.armed.Store(true)
				err = update(t.Context(), conn, backend.Call{MayChange: true, Prove: showsItself(own)})
				c.armed.Store(false)
				for _, st := range s.Ledger().Statements() {
					require.True(t, st.Session == 1 || st.SQL != sql || st.State != testserver.Done, "cut before %d: %v", at, err)
				}
				executions := len(s.Ledger().Executions(sql))
				ran[executions > 0]++
				if err == nil {
					require.Equal(t, 1, executions)
				} else if executions > 0 {
					require.False(t, failure(t, err).Unsent, "cut before %d: %v", at, err)
				}
				if c.next <= at/2 {
					done++
				}
				_ = conn.Close()
				s.Faults().EvictSessions()
				synctest.Wait()
			})
		}
		require.Greater(t, ran[false], 3, "%s: %v", sql, ran)
		require.Greater(t, ran[true], 0)
	}
}

// showsItself is how the session of a prepared statement is recognised.
func showsItself(own backend.Prepared) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		rows, err := own.Query(ctx, nil, backend.Call{})
		if err != nil {
			return err
		}
		defer rows.Close()
		batch, err := rows.Next()
		if err == nil && batch.Column(0).ValueStr(0) != "own" { // servers count handles
			err = errors.New("of another session")
		}
		return err
	}
}

func TestSeveralStatementsInOneTextAreRefusedInAWatchedTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, testserver.Strict())
		c, err := s.foreign(t)(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		tx, err := c.Begin(t.Context())
		require.NoError(t, err)
		_, err = c.Update(t.Context(), "CREATE TABLE a (v BIGINT); CREATE TABLE b (v BIGINT)", backend.Call{Tx: tx})
		require.Equal(t, backend.FaultUnsupported, failure(t, err).Fault)
		_, err = c.Update(t.Context(), "CREATE TABLE a (v BIGINT)", backend.Call{Tx: tx})
		require.NoError(t, err, "the transaction goes on")
		require.NoError(t, c.EndTx(t.Context(), tx, true))
		require.Zero(t, s.Ledger().Snapshot().Prepared, "all handles are closed")
	})
}

// What fails by itself is no sign of a lost session.
func TestAStatementThatFailsInAWatchedTransactionKeepsItsOwnError(t *testing.T) {
	for _, profile := range []testserver.Profile{testserver.Strict(), testserver.SwanLake()} {
		synctest.Test(t, func(t *testing.T) {
			s := startServer(t, profile)
			c, err := s.foreign(t)(t.Context())
			require.NoError(t, err)
			defer func() { require.NoError(t, c.Close()) }()
			_, err = c.Update(t.Context(), "CREATE TABLE t (v BIGINT PRIMARY KEY)", backend.Call{})
			require.NoError(t, err)
			for _, sql := range []string{"INSERT INTO nowhere VALUES (1)", "INSERT INTO t VALUES (1), (1)"} {
				tx, err := c.Begin(t.Context())
				require.NoError(t, err)
				_, err = c.Update(t.Context(), sql, backend.Call{Tx: tx})
				require.Equal(t, backend.FaultStatement, failure(t, err).Fault, "%v", err)
				require.NotErrorIs(t, err, backend.ErrSessionLost)
				_, err = c.Update(t.Context(), "INSERT INTO t VALUES (2)", backend.Call{Tx: tx})
				require.ErrorContains(t, err, "only be rolled back")
				require.NoError(t, c.EndTx(t.Context(), tx, false))
				require.NoError(t, c.Lost())
			}
			require.Zero(t, s.Ledger().Snapshot().Prepared)
			time.Sleep(time.Second)
		})
	}
}

func TestTheCommitOfAWatchedTransactionTellsWhetherItWasSent(t *testing.T) {
	for name, test := range map[string]struct {
		cut     func(s server)
		unknown bool
	}{
		"cut before it": {func(s server) { s.Faults().KillConns() }, false},
		"its reply lost": {func(s server) {
			s.Faults().Set(testserver.Fault{On: testserver.OnEnd, After: true, Times: 1, Do: testserver.Kill()})
		}, true},
	} {
		for _, profile := range []testserver.Profile{testserver.Strict(), testserver.SwanLake()} {
			t.Run(name+" "+profile.Name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := startServer(t, profile)
					c, err := s.foreign(t)(t.Context())
					require.NoError(t, err)
					defer func() { _ = c.Close() }()
					h := session.New(c, &session.Policy{OwnerContext: t.Context()}, func(error) {})
					require.NoError(t, h.BeginTransaction(t.Context()))
					_, err = h.Update(t.Context(), "CREATE TABLE t (v BIGINT)")
					require.NoError(t, err)
					test.cut(s)
					synctest.Wait()
					err = h.Commit(t.Context())
					require.ErrorIs(t, err, backend.ErrSessionLost)
					require.Equal(t, test.unknown, errors.Is(err, backend.ErrCommitUnknown), "%v", err)
					_ = h.Close()
					s.Faults().EvictSessions()
					synctest.Wait()
				})
			})
		}
	}
}

// TestNoPreparedStatementRunsInPlaceOfAnotherWhereverTheDriverDialsAgain cuts the transport before
// each RPC of a session that prepares statements, outside of a transaction and inside of one, and runs
// them in any order. The server counts handles from 1 in each session.
func TestNoPreparedStatementRunsInPlaceOfAnotherWhereverTheDriverDialsAgain(t *testing.T) {
	texts := []string{"INSERT INTO t VALUES (?)", "INSERT INTO u VALUES (?)", "INSERT INTO v VALUES (?)"}
	ended := map[bool]int{}
	for seed, program := range []string{"PPPBPPERRRR", "PPBPERPRRR", "BUEPBUPEPRRR", "PPUPRRR", "PBPPEPPRRRR"} {
		for at, all := 0, false; !all; at++ {
			synctest.Test(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(uint64(seed), 2))
				s := startServer(t, swanLake())
				c := &cutter{server: s, at: map[int]bool{at: true}}
				conn, err := openForeign(flightDatabase(t, "127.0.0.1:1", c.options()...))(t.Context())
				require.NoError(t, err)
				for _, table := range []string{"t", "u", "v"} {
					_, err = conn.Update(t.Context(), "CREATE TABLE "+table+" (v BIGINT)", backend.Call{})
					require.NoError(t, err)
				}
				row := int64s(1)
				defer row.Release()
				c.armed.Store(true)
				var kept []backend.Prepared
				var of []string
				var tx backend.TxID
				prepare := func() error {
					sql := texts[rnd.IntN(len(texts))]
					stmt, err := conn.Prepare(t.Context(), sql, backend.Call{Tx: tx})
					if err == nil {
						kept, of = append(kept, stmt), append(of, sql)
					}
					return err
				}
				run := func() error {
					i := rnd.IntN(len(kept))
					before := s.Ledger().Snapshot().Executed
					_, err := kept[i].Update(t.Context(), row, backend.Call{Tx: tx, MayChange: true})
					for _, st := range s.Ledger().Statements()[before:] {
						require.True(t, st.SQL == of[i] || !strings.HasPrefix(st.SQL, "INSERT"), "cut before %d: %s ran in place of %s", at, st.SQL, of[i])
					}
					if err == nil {
						require.NotEmpty(t, s.Ledger().Executions(of[i]), "cut before %d", at)
					}
					return err
				}
				begin := func() (err error) { tx, err = conn.Begin(t.Context()); return err }
				end := func() error {
					was := tx
					tx = ""
					return conn.EndTx(t.Context(), was, true)
				}
				other := func() error {
					_, err := conn.Update(t.Context(), "CREATE TABLE IF NOT EXISTS w (v BIGINT)", backend.Call{Tx: tx, MayChange: true})
					return err
				}
				steps := map[rune]func() error{'P': prepare, 'R': run, 'B': begin, 'E': end, 'U': other}
				for _, step := range program {
					if conn.Lost() == nil {
						err = steps[step]()
					}
				}
				c.armed.Store(false)
				ended[err == nil]++
				all = c.next <= at
				_ = conn.Close()
				s.Faults().EvictSessions()
				synctest.Wait()
			})
		}
	}
	require.Positive(t, ended[true], ended)
	require.Greater(t, ended[false], 10, ended)
}

// Servers may refuse what was prepared in a transaction that has ended.
func TestWhatWasPreparedInATransactionRunsBehindIt(t *testing.T) {
	for _, profile := range []testserver.Profile{testserver.Strict(), swanLake()} {
		synctest.Test(t, func(t *testing.T) {
			s := startServer(t, profile)
			c, err := s.foreign(t)(t.Context())
			require.NoError(t, err)
			defer func() { require.NoError(t, c.Close()) }()
			_, err = c.Update(t.Context(), "CREATE TABLE t (v BIGINT)", backend.Call{})
			require.NoError(t, err)
			row := int64s(1)
			defer row.Release()
			var stmt backend.Prepared
			run := func(tx backend.TxID) {
				_, err := stmt.Update(t.Context(), row, backend.Call{Tx: tx, MayChange: true})
				require.NoError(t, err)
			}
			for range 2 {
				tx, err := c.Begin(t.Context())
				require.NoError(t, err)
				stmt, err = c.Prepare(t.Context(), "INSERT INTO t VALUES (?)", backend.Call{Tx: tx})
				require.NoError(t, err)
				run(tx)
				require.NoError(t, c.EndTx(t.Context(), tx, true))
				run("")
				run("")
				tx, err = c.Begin(t.Context())
				require.NoError(t, err)
				run(tx)
				require.NoError(t, c.EndTx(t.Context(), tx, true))
				require.NoError(t, stmt.Close(t.Context()))
			}
			require.Len(t, s.Ledger().Executions("INSERT INTO t VALUES (?)"), 8)
			require.Zero(t, s.Ledger().Snapshot().Prepared, "all handles are closed")
		})
	}
}

// The server's failure to prepare one mark leaves the next statements marked.
func TestAMarkThatWasRefusedIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, testserver.Strict())
		c, err := s.foreign(t)(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		s.Faults().Set(testserver.Fault{On: testserver.OnPrepare, SQL: "SELECT '", Times: 2, Do: testserver.Fail(codes.InvalidArgument, "not this one")})
		for _, handles := range []int{1, 2} { // without the mark, and with it
			stmt, err := c.Prepare(t.Context(), "SELECT 2", backend.Call{})
			require.NoError(t, err)
			require.Equal(t, handles, s.Ledger().Snapshot().Prepared)
			require.NoError(t, stmt.Close(t.Context()))
		}
		require.Zero(t, s.Ledger().Snapshot().Prepared)
	})
}
