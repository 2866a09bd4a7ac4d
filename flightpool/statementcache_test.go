package flightpool

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/testserver"
)

const (
	ofTable = "SELECT * FROM t WHERE a = ?"
	ofOther = "SELECT * FROM u WHERE a = ?"
	itself  = "SELECT ?"
)

// keeping runs f on a server of the profile, with two tables, a pool of one connection that keeps two
// statements, and a count of those that were prepared.
func keeping(t *testing.T, profile testserver.Profile, f func(r *rig, prepared func() int)) {
	inBubble(t, profile, Config{MaxSize: 1, StatementCache: 2}, func(r *rig) {
		r.exec("CREATE TABLE t (a BIGINT)")
		r.exec("CREATE TABLE u (a BIGINT)")
		r.exec("INSERT INTO t VALUES (1), (2)")
		count := r.srv.Faults().Set(testserver.Fault{On: testserver.OnPrepare, Do: testserver.Do(func() {})})
		f(r, count.Fired)
	})
}

// rowsOf is how many rows a call has given.
func (r *rig) rowsOf(sql string, args ...any) int {
	r.Helper()
	res, err := r.pool.Query(r.Context(), sql, args...)
	require.NoError(r, err)
	defer res.Release()
	n := 0
	for res.Next() {
		n += int(res.RecordBatch().NumRows())
	}
	require.NoError(r, res.Err())
	synctest.Wait()
	return n
}

func (r *rig) openOnServer() int { synctest.Wait(); return r.srv.Ledger().Snapshot().Prepared }

// Nothing is kept for connections that cannot be told from others, such as the values of a Layer. They
// are closed, and their sessions reset, all the same.
func TestNoStatementIsKeptForConnectionsThatCannotBeTold(t *testing.T) {
	layer := &valueLayer{}
	inBubble(t, testserver.Strict(), Config{MaxSize: 1, StatementCache: 2, Layer: layer, OnReturn: ResetSQL("SELECT 2")}, func(r *rig) {
		r.exec("CREATE TABLE t (a BIGINT)")
		r.exec("INSERT INTO t VALUES (1), (2)")
		for range 2 {
			require.Equal(r, 1, r.rowsOf(ofTable, 1))
		}
		s := r.session()
		_, err := s.Update(r.Context(), "SET a = 1")
		require.NoError(r, err)
		require.NoError(r, s.Close())
		require.Zero(r, r.openOnServer())
		require.EqualValues(r, 1, r.pool.Stats().Opens)
		require.NoError(r, r.pool.Close(r.Context()))
		require.Equal(r, 1, layer.closed)
	})
}

func TestAStatementIsKeptForLaterCalls(t *testing.T) {
	keeping(t, testserver.Strict(), func(r *rig, prepared func() int) {
		for _, arg := range []int{1, 7, 2} {
			require.Equal(r, map[bool]int{true: 1}[arg < 3], r.rowsOf(ofTable, arg))
		}
		require.Equal(r, 1, prepared())
		var n int64
		require.NoError(r, r.pool.QueryRow(r.Context(), ofTable, 2).Scan(&n)) // which reads no further than the row
		synctest.Wait()
		require.EqualValues(r, 2, n)
		require.Equal(r, 1, prepared())

		require.Equal(r, 0, r.rowsOf(ofOther, 1))
		require.Equal(r, 1, r.rowsOf(ofTable, 1))
		require.Equal(r, 1, r.rowsOf(itself, 1)) // in place of the one that was not used for longest
		require.Equal(r, 2, r.openOnServer())
		require.Equal(r, 3, prepared())
		require.Equal(r, 1, r.rowsOf(ofTable, 1))
		require.Equal(r, 3, prepared())
		require.Equal(r, 0, r.rowsOf(ofOther, 1))
		require.Equal(r, 4, prepared())

		require.NoError(r, drained(r.pool.QueryWithOptions(r.Context(), ofOther, QueryOptions{Args: []any{1}, Retry: RetryNever})))
		require.Equal(r, 5, prepared(), "what must not be repeated is prepared by its call")
	})
}

// Whatever may have changed what a statement means has it closed, and so has what fails.
func TestAStatementIsNotKept(t *testing.T) {
	for name, between := range map[string]func(r *rig){
		"a table that another program has changed": func(r *rig) {
			other, err := New(r.Context(), "grpc://127.0.0.1:1", Config{MaxSize: 1, Dialer: r.srv.Dial})
			require.NoError(r, err)
			defer func() { require.NoError(r, other.Close(r.Context())) }()
			for _, sql := range []string{"DROP TABLE t", "CREATE TABLE t (a BIGINT, b BIGINT)", "INSERT INTO t VALUES (1, 1)"} {
				_, err = other.Update(r.Context(), sql)
				require.NoError(r, err)
			}
			require.Equal(r, 1, r.rowsOf(ofTable, 1)) // as the server has it now
		},
		"a session that was changed": func(r *rig) {
			s := r.session()
			_, err := s.Update(r.Context(), "SET colour = 'red'")
			require.NoError(r, err)
			require.NoError(r, s.Close())
			require.Zero(r, r.openOnServer())
		},
		"a call that is cut": func(r *rig) {
			ctx, stop := context.WithTimeout(r.Context(), ms)
			defer stop()
			require.Error(r, drained(r.pool.Query(ctx, "SELECT sleep('1m')")))
			time.Sleep(time.Minute)
			require.Zero(r, r.openOnServer())
		},
		"a reading that fails": func(r *rig) {
			r.srv.Faults().Set(testserver.Fault{On: testserver.OnBatch, SQL: ofTable, Times: 1, Do: testserver.Fail(codes.InvalidArgument, "no")})
			_ = drained(r.pool.Query(r.Context(), ofTable, 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			keeping(t, testserver.Strict(), func(r *rig, prepared func() int) {
				require.Equal(r, 1, r.rowsOf(ofTable, 1))
				between(r)
				before := prepared()
				require.LessOrEqual(r, r.openOnServer(), 1)
				require.Equal(r, 1, r.rowsOf(ofTable, 1))
				require.Equal(r, before+1, prepared())
			})
		})
	}
	keeping(t, testserver.Strict(), func(r *rig, prepared func() int) {
		require.Equal(r, 1, r.rowsOf(ofTable, 1))
		none := ints("1")
		defer none.Release()
		res, err := r.pool.QueryWithParams(r.Context(), ofTable, none)
		_ = drained(res, err)
		require.Equal(r, 2, prepared(), "the parameters of before could stand")

		require.Equal(r, 1, r.rowsOf(itself, 1))
		require.Equal(r, 1, r.rowsOf(itself, 2))
		require.Equal(r, 3, prepared())
		require.Equal(r, 1, r.rowsOf(itself, "2"))
		require.Equal(r, 4, prepared(), "parameters of another type")
	})
	renewing := testserver.Strict()
	renewing.RenewHandles = true
	keeping(t, renewing, func(r *rig, prepared func() int) {
		require.Equal(r, 1, r.rowsOf(ofTable, 1))
		require.Equal(r, 1, r.rowsOf(ofTable, 2))
		require.Equal(r, 2, prepared(), "its handle stands for the parameters")
	})
}

// What the server refuses is prepared again within the call.
func TestAStatementThatTheServerRefusesIsPreparedAgain(t *testing.T) {
	for _, on := range []testserver.Point{testserver.OnDoPut, testserver.OnGetFlightInfo} {
		keeping(t, testserver.Strict(), func(r *rig, prepared func() int) {
			require.Equal(r, 1, r.rowsOf(ofTable, 1))
			once := r.srv.Faults().Set(testserver.Fault{On: on, Times: 1, Do: testserver.Fail(codes.InvalidArgument, "no such statement")})
			require.Equal(r, 1, r.rowsOf(ofTable, 2))
			require.Equal(r, 1, once.Fired())
			require.Equal(r, 2, prepared())
			require.Equal(r, 1, r.openOnServer())
			r.srv.Faults().Set(testserver.Fault{On: on, Do: testserver.Fail(codes.InvalidArgument, "no such statement")})
			require.Error(r, drained(r.pool.Query(r.Context(), ofTable, 1)))
			require.Equal(r, 3, prepared(), "once")
		})
	}
}

// A server that replaces a session gives the handles of the old one again. No call has the
// rows of another statement.
func TestKeptStatementsOfAReplacedSession(t *testing.T) {
	for _, profile := range []testserver.Profile{testserver.Strict(), testserver.SwanLake(), testserver.Dremio()} {
		for _, first := range []string{ofTable, ofOther, itself} {
			t.Run(profile.Name+" "+first, func(t *testing.T) {
				keeping(t, profile, func(r *rig, _ func() int) {
					require.Equal(r, 1, r.rowsOf(ofTable, 1))
					require.Equal(r, 0, r.rowsOf(ofOther, 1))
					r.srv.Faults().EvictSessions()
					want := map[string]int{ofTable: 1, ofOther: 0, itself: 1}
					for _, sql := range []string{first, ofOther, ofTable, ofOther, itself} {
						res, err := r.pool.Query(r.Context(), sql, 1)
						if err != nil {
							continue // that the session is gone may be said
						}
						n := 0
						for res.Next() {
							n += int(res.RecordBatch().NumRows())
						}
						if res.Err() == nil {
							require.Equal(r, want[sql], n, sql)
						}
						res.Release()
						synctest.Wait()
					}
				})
			})
		}
	}
}

func TestStatementCacheNeedsRepetition(t *testing.T) {
	for _, cfg := range []Config{{StatementCache: 1001}, {StatementCache: 1, DisableRetry: true}, {StatementCache: 1, OnReturn: ResetNone}} {
		_, err := New(t.Context(), "grpc://server:1", cfg)
		require.ErrorContains(t, err, "StatementCache: ")
	}
}

// Metadata of the caller's context may tell a server what a text means, as Headers may: no call executes
// what was prepared under that of another.
func TestAStatementIsNotKeptBesideMetadataOfItsCallersContext(t *testing.T) {
	keeping(t, testserver.Strict(), func(r *rig, prepared func() int) {
		for i, tenant := range []string{"", "a", "b", ""} {
			ctx := r.Context()
			if tenant != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, "database", tenant)
			}
			require.NoError(r, drained(r.pool.Query(ctx, ofTable, 1)))
			synctest.Wait()
			require.Equal(r, []int{1, 2, 3, 3}[i], prepared(), tenant)
		}
		for range 2 { // of a tracer
			ctx := metadata.AppendToOutgoingContext(r.Context(), "traceparent", "00-1-2-01", "x-b3-traceid", "1")
			require.NoError(r, drained(r.pool.Query(ctx, ofTable, 1)))
			synctest.Wait()
			require.Equal(r, 3, prepared())
		}
	})
}

// A statement that a server has prepared in the session that it has put in the place of another, and of
// which no answer came, has the handle of a kept one.
func TestAHandleThatNobodyKnowsIsNoKeptStatement(t *testing.T) {
	for _, said := range []testserver.Effect{testserver.Fail(codes.Internal, "?"), testserver.Fail(codes.Unimplemented, "unexpected HTTP status code received from server: 404 (Not Found)")} {
		for _, kept := range []bool{false, true} { // the text of the call that fails
			for _, session := range []bool{false, true} {
				keeping(t, testserver.SwanLake(), func(r *rig, _ func() int) {
					require.Equal(r, 1, r.rowsOf(ofTable, 1)) // the first handle of its session
					require.Equal(r, 0, r.rowsOf(ofOther, 1))
					r.srv.Faults().EvictSessions()
					sql := map[bool]string{false: itself, true: ofOther}[kept]
					lost := r.srv.Faults().Set(testserver.Fault{On: testserver.OnPrepare, SQL: sql, After: true, Times: 1, Do: said})
					if session {
						s := r.session()
						_, err := s.PrepareQuery(r.Context(), sql)
						require.Error(r, err)
						_ = s.Close()
					} else {
						require.Error(r, drained(r.pool.QueryWithOptions(r.Context(), sql, QueryOptions{Args: []any{1}})))
					}
					require.Equal(r, 1, lost.Fired())
					synctest.Wait()
					require.Equal(r, 1, r.rowsOf(ofTable, 1))
				})
			}
		}
	}
}

// What a session of the pool makes, alters or drops has statements prepared again that were kept before: a server may
// give their rows by the columns of then, as GizmoSQL does.
func TestWhatThePoolAltersIsPreparedAgain(t *testing.T) {
	for _, change := range []func(r *rig) error{
		func(r *rig) error { _, err := r.pool.Update(r.Context(), "CREATE TABLE v (a BIGINT)"); return err },
		func(r *rig) error {
			return r.pool.InTx(r.Context(), TxOptions{}, func(ctx context.Context, tx *Tx) error {
				_, err := tx.Update(ctx, "CREATE TABLE v (a BIGINT)")
				return err
			})
		},
		func(r *rig) error {
			_, err := IngestRows(r.Context(), r.pool, "v", slices.Values([]struct{ A int64 }{{1}}), IngestOptions{Mode: IngestReplace})
			return err
		},
	} {
		keeping(t, testserver.Strict(), func(r *rig, prepared func() int) {
			require.Equal(r, 1, r.rowsOf(ofTable, 1))
			require.Equal(r, 1, r.rowsOf(ofTable, 2))
			before := prepared()
			require.NoError(r, change(r))
			require.Equal(r, 1, r.rowsOf(ofTable, 1))
			require.Equal(r, 1, r.rowsOf(ofTable, 2))
			require.Equal(r, before+1, prepared())
			require.Equal(r, 1, r.openOnServer())
		})
	}
}

// So is a read of a PreparedQuery, once; a change is not, which some servers would run then.
func TestAPreparedReadIsPreparedAgainBehindWhatThePoolAlters(t *testing.T) {
	keeping(t, testserver.Strict(), func(r *rig, prepared func() int) {
		require.NoError(r, r.pool.Resize(2))
		s := r.session()
		read, err := s.PrepareQuery(r.Context(), ofTable)
		require.NoError(r, err)
		change, err := s.PrepareQuery(r.Context(), "INSERT INTO t VALUES (?)")
		require.NoError(r, err)
		for _, alter := range []string{"SELECT 1", "CREATE TABLE v (a BIGINT)", "SELECT 1", "DROP TABLE v"} {
			require.NoError(r, drained(r.pool.Execute(r.Context(), alter)))
			for range 2 { // by the second change the session's proof is prepared
				_, err = change.Update(r.Context(), 7)
				require.NoError(r, err)
			}
			before, more := prepared(), map[bool]int{true: 1}[alter != "SELECT 1"]
			for range 2 {
				require.NoError(r, drained(read.Query(r.Context(), 1)))
				_, err = change.Update(r.Context(), 7)
				require.NoError(r, err)
			}
			require.Equal(r, before+more, prepared(), alter)
		}
		require.NoError(r, s.Close())
		require.Zero(r, r.openOnServer())
	})
}

// A change that others do not see yet is behind no statement: what is prepared while it is under way, or beside its
// transaction, is prepared again at its end.
func TestAPreparedReadIsPreparedAgainBehindAChangeThatWasOpen(t *testing.T) {
	const create = "CREATE TABLE v (a BIGINT)"
	bySession := testserver.Strict()
	bySession.Name, bySession.IgnoreTxID, bySession.UnknownTxOK = "by its session", true, true
	for _, profile := range []testserver.Profile{testserver.Strict(), bySession} {
		for name, change := range map[string]func(r *rig, own *SessionHandle, executed func(again int)){
			"by a transaction of another's": func(r *rig, _ *SessionHandle, executed func(int)) {
				require.NoError(r, r.pool.InTx(r.Context(), TxOptions{}, func(ctx context.Context, tx *Tx) error {
					_, err := tx.Update(ctx, create)
					executed(1)
					return err
				}))
				executed(1)
			},
			"by a transaction of another's that comes to nothing": func(r *rig, _ *SessionHandle, executed func(int)) {
				s := r.session()
				require.NoError(r, s.BeginTransaction(r.Context()))
				_, err := s.Update(r.Context(), create)
				require.NoError(r, err)
				executed(1)
				require.NoError(r, s.Close())
				executed(1)
			},
			"under way": func(r *rig, _ *SessionHandle, executed func(int)) {
				arrived, goOn := make(chan struct{}), make(chan struct{})
				r.srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: create, Times: 1, Do: testserver.Do(func() { close(arrived); <-goOn })})
				goOnce := sync.OnceFunc(func() { close(goOn) })
				defer goOnce()
				done := make(chan error, 1)
				go func() { _, err := r.pool.Update(r.Context(), create); done <- err }()
				<-arrived
				executed(1)
				goOnce()
				require.NoError(r, <-done)
				executed(1)
			},
			"by a transaction of its own": func(r *rig, own *SessionHandle, executed func(int)) {
				require.NoError(r, own.BeginTransaction(r.Context()))
				_, err := own.Update(r.Context(), create)
				require.NoError(r, err)
				executed(1)
				require.NoError(r, own.Rollback(r.Context()))
				executed(1)
			},
			"open when a transaction of its own began": func(r *rig, own *SessionHandle, executed func(int)) {
				s := r.session()
				require.NoError(r, s.BeginTransaction(r.Context()))
				_, err := s.Update(r.Context(), create)
				require.NoError(r, err)
				require.NoError(r, own.BeginTransaction(r.Context()))
				executed(1)
				require.NoError(r, s.Commit(r.Context()))
				executed(1) // which may not see it
				require.NoError(r, own.Rollback(r.Context()))
				executed(1)
				require.NoError(r, s.Close())
			},
			"of a temporary table of its own": func(r *rig, own *SessionHandle, executed func(int)) {
				for _, name := range []string{"v", "w"} {
					_, err := own.Update(r.Context(), "CREATE TEMP TABLE "+name+" (a BIGINT)")
					require.NoError(r, err)
					executed(1)
				}
			},
			"of a temporary table, by a transaction of its own": func(r *rig, own *SessionHandle, executed func(int)) {
				require.NoError(r, own.BeginTransaction(r.Context()))
				_, err := own.Update(r.Context(), "CREATE TEMP TABLE v (a BIGINT)")
				require.NoError(r, err)
				executed(1)
				require.NoError(r, own.Rollback(r.Context()))
				executed(1)
			},
			"of a temporary table of another's": func(r *rig, _ *SessionHandle, executed func(int)) {
				_, err := r.pool.Update(r.Context(), "CREATE TEMP TABLE v (a BIGINT)")
				require.NoError(r, err)
				executed(0)
			},
			"beside a transaction of its own": func(r *rig, own *SessionHandle, executed func(int)) {
				require.NoError(r, own.BeginTransaction(r.Context()))
				_, err := r.pool.Update(r.Context(), create)
				require.NoError(r, err)
				executed(1)
				require.NoError(r, own.Rollback(r.Context()))
				executed(1)
			},
		} {
			t.Run(profile.Name+"/"+name, func(t *testing.T) {
				keeping(t, profile, func(r *rig, _ func() int) {
					require.NoError(r, r.pool.Resize(2))
					prepared := r.srv.Faults().Set(testserver.Fault{On: testserver.OnPrepare, SQL: ofTable, Do: testserver.Do(func() {})}).Fired
					s := r.session()
					read, err := s.PrepareQuery(r.Context(), ofTable)
					require.NoError(r, err)
					executed := func(again int) {
						r.Helper()
						before := prepared()
						for range 2 {
							require.NoError(r, drained(read.Query(r.Context(), 1)))
						}
						require.Equal(r, before+again, prepared())
					}
					executed(0)
					change(r, s, executed)
					_ = s.Close() // this server does not tell of temporary tables
					require.Zero(r, r.openOnServer())
				})
			})
		}
	}
}

// A rollback to a savepoint takes back what the session has altered since.
func TestAPreparedReadIsPreparedAgainBehindARollbackToASavepoint(t *testing.T) {
	keeping(t, testserver.Strict(), func(r *rig, _ func() int) {
		prepared := r.srv.Faults().Set(testserver.Fault{On: testserver.OnPrepare, SQL: ofTable, Do: testserver.Do(func() {})}).Fired
		s := r.session()
		require.NoError(r, s.BeginTransaction(r.Context()))
		require.NoError(r, s.Savepoint(r.Context(), "a"))
		_, err := s.Update(r.Context(), "CREATE TABLE v (a BIGINT)")
		require.NoError(r, err)
		read, err := s.PrepareQuery(r.Context(), ofTable)
		require.NoError(r, err)
		require.NoError(r, drained(read.Query(r.Context(), 1)))
		require.NoError(r, s.RollbackTo(r.Context(), "a"))
		before := prepared()
		for range 2 {
			require.NoError(r, drained(read.Query(r.Context(), 1)))
		}
		require.Equal(r, before+1, prepared())
		require.NoError(r, s.Commit(r.Context()))
		require.NoError(r, s.Close())
	})
}
