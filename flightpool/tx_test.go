package flightpool

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/testserver"
)

func (r *rig) begin() *Tx {
	r.Helper()
	tx, err := r.pool.BeginTx(r.Context(), TxOptions{})
	require.NoError(r, err)
	return tx
}

// However a Tx ends, its connection is free again, what was to be stored is, and the
// rest is not.
func TestATxGivesItsConnectionBackHoweverItEnds(t *testing.T) {
	for _, profile := range []testserver.Profile{testserver.Strict(), testserver.SwanLake()} {
		for how, c := range map[string]struct {
			end    func(r *rig, tx *Tx)
			stored string
		}{
			"commit":   {func(r *rig, tx *Tx) { require.NoError(r, tx.Commit(r.Context())) }, "1"},
			"rollback": {func(r *rig, tx *Tx) { require.NoError(r, tx.Rollback(r.Context())) }, "0"},
			"rollback with an unread result": {func(r *rig, tx *Tx) {
				res, err := tx.Query(r.Context(), "SELECT * FROM generate(200000)")
				require.NoError(r, err)
				defer res.Release()
				require.ErrorIs(r, tx.Commit(r.Context()), ErrBusy)
				require.Equal(r, 1, r.pool.Stats().InUse, "it may be committed still")
				require.NoError(r, tx.Rollback(r.Context()))
				require.EqualValues(r, 1, r.pool.Stats().Opens)
			}, "0"},
			"rollback by an ended context": {func(r *rig, tx *Tx) {
				ended, stop := context.WithCancel(r.Context())
				stop()
				r.srv.Faults().Set(testserver.Fault{On: testserver.OnEnd, Times: 1, Do: testserver.Delay(time.Second)})
				begun := time.Now()
				err := tx.Rollback(ended)
				require.Equal(r, r.srv.Profile().UnknownTxOK, errors.Is(err, ErrCommitUnknown), "only the answer tells there whether something is stored: %v", err)
				require.True(r, err == nil || errors.Is(err, context.Canceled), "%v", err)
				require.Zero(r, time.Since(begun))
				synctest.Wait()
				time.Sleep(2 * time.Second)
			}, "0"},
			"commit by an ended context": {func(r *rig, tx *Tx) {
				ended, stop := context.WithCancel(r.Context())
				stop()
				require.ErrorIs(r, tx.Commit(ended), context.Canceled)
				_, err := tx.Update(r.Context(), "INSERT INTO "+r.bulkTable()+" VALUES (9)")
				var e *Error
				require.True(r, errors.As(err, &e) && e.Unsent, "the end of the transaction counts at once: %v", err)
				require.ErrorIs(r, err, ErrHandleClosed)
				synctest.Wait()
			}, "0"},
			"commit after a failure": {func(r *rig, tx *Tx) {
				_, err := tx.Update(r.Context(), "SELECT error('x')")
				require.Error(r, err)
				require.ErrorIs(r, tx.Commit(r.Context()), ErrTxAborted)
			}, "0"},
		} {
			t.Run(profile.Name+"/"+how, func(t *testing.T) {
				inBubble(t, profile, Config{MaxSize: 1}, func(r *rig) {
					r.exec("CREATE TABLE " + r.bulkTable() + " (a BIGINT)")
					tx := r.begin()
					_, err := tx.Update(r.Context(), "INSERT INTO "+r.bulkTable()+" VALUES (?)", 7)
					require.NoError(r, err)
					require.Equal(r, "1", r.value(tx, "SELECT count(*) FROM "+r.bulkTable()))
					c.end(r, tx)
					require.Zero(r, r.pool.Stats().InUse)
					require.Equal(r, c.stored, r.value(r.pool, "SELECT count(*) FROM "+r.bulkTable()))

					// What comes after the end is refused, and a second end does nothing.
					_, err = tx.Update(r.Context(), "INSERT INTO "+r.bulkTable()+" VALUES (8)")
					require.ErrorIs(r, err, ErrHandleClosed)
					require.ErrorIs(r, tx.Commit(r.Context()), ErrHandleClosed)
					require.NoError(r, tx.Rollback(r.Context()))
					require.Equal(r, c.stored, r.value(r.pool, "SELECT count(*) FROM "+r.bulkTable()))
				})
			})
		}
	}
}

// A session that is made clean behind its caller takes no more statements: they would be
// stored by themselves.
func TestASessionThatIsLeftWithItsContextTakesNoStatement(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // nothing behind the caller runs before its next call
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		r.exec("CREATE TABLE t (a BIGINT)")
		ended, stop := context.WithCancel(r.Context())
		defer stop()
		var kept *SessionHandle
		require.NoError(r, r.pool.WithSession(ended, func(ctx context.Context, s *SessionHandle) error {
			kept = s
			_, err := s.Update(ctx, "CREATE TEMP TABLE u (a BIGINT)") // it has to be cleaned
			stop()
			return err
		}))
		_, err := kept.Update(r.Context(), "INSERT INTO t VALUES (1)")
		require.ErrorIs(r, err, ErrHandleClosed)
		var e *Error
		require.True(r, errors.As(err, &e) && e.Unsent, "%v", err)
		require.Zero(r, r.executions("INSERT INTO t VALUES (1)"))
		synctest.Wait()
		require.Zero(r, r.pool.Stats().InUse)
	})
}

// A group of goroutines ends its context by the error of the first that fails, which may
// be ErrBusy: that of the commit is another.
func TestACommitOfWhatABusyCallHasCutGivesTheConnectionBack(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		tx := r.begin()
		ctx, stop := context.WithCancelCause(r.Context())
		time.AfterFunc(time.Second, func() {
			_, err := tx.Update(r.Context(), "SELECT 1")
			stop(err)
		})
		_, err := firstValue(ctx, tx, "SELECT sleep('1h')")
		require.ErrorIs(r, err, ErrBusy)
		err = tx.Commit(r.Context())
		require.ErrorIs(r, err, ErrTxAborted)
		require.ErrorIs(r, err, ErrBusy)
		require.Zero(r, r.pool.Stats().InUse)
	})
}

// SwanLake rolls back and sends a COMMIT again that its database has refused: what is told is no conflict by its words.
func TestACommitThatSwanLakeRefusesForAConflictRunsAgain(t *testing.T) {
	inBubble(t, testserver.SwanLake(), Config{MaxSize: 2}, func(r *rig) {
		r.exec("CREATE TABLE t (a BIGINT)")
		r.exec("INSERT INTO t VALUES (1)")
		runs := 0
		err := r.pool.InTx(r.Context(), TxOptions{}, func(ctx context.Context, tx *Tx) error {
			if runs++; runs == 1 {
				defer r.exec("UPDATE t SET a = 5")
			}
			_, err := tx.Update(ctx, "UPDATE t SET a = 2")
			return err
		})
		require.NoError(r, err)
		require.Equal(r, 2, runs)
		require.Equal(r, "1", r.value(r.pool, "SELECT count(*) FROM t WHERE a = 2"))
	})
}

// What fn has committed is not stored again by a conflict of something else.
func TestATransactionThatItsFunctionHasEndedDoesNotRunAgain(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 2}, func(r *rig) {
		ends := map[string]func(tx *Tx) error{
			"1": func(tx *Tx) error { return tx.Commit(r.Context()) },
			"0": func(tx *Tx) error { return tx.Rollback(r.Context()) },
		}
		for stored, end := range ends {
			for i, sql := range []string{"SELECT 2", "SELECT 1"} {
				table := fmt.Sprintf("t%s%d", stored, i)
				r.exec("CREATE TABLE " + table + " (a BIGINT)")
				conflict := r.srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: "SELECT 2", Do: testserver.Fail(codes.Aborted, "conflict")})
				runs := 0
				err := r.pool.InTx(r.Context(), TxOptions{}, func(ctx context.Context, tx *Tx) error {
					runs++
					_, err := tx.Update(ctx, "INSERT INTO "+table+" VALUES (1)")
					require.NoError(r, err)
					require.NoError(r, end(tx))
					_, err = r.pool.Update(ctx, sql)
					return err
				})
				require.ErrorContains(r, err, "its function has ended the transaction")
				require.Equal(r, stored == "1", errors.Is(err, ErrCommitUnknown), "%v", err)
				require.Equal(r, stored == "0" && i == 0, IsConflict(err), "%v", err)
				require.False(r, SafeToRetry(err))
				require.Equal(r, 1, runs)
				conflict.Clear()
				require.Equal(r, stored, r.value(r.pool, "SELECT count(*) FROM "+table))
			}
		}
	})
}

// A goroutine that fn has left may be committing when fn fails, after a savepoint has led
// back from its failure.
func TestATransactionThatIsBeingCommittedDoesNotRunAgain(t *testing.T) {
	for _, name := range []string{"fn fails", "fn returns nil"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, testserver.Strict(), Config{MaxSize: 2}, func(r *rig) {
				r.exec("CREATE TABLE t (a BIGINT)")
				r.srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: "SELECT 2", Do: testserver.Fail(codes.Aborted, "conflict")})
				runs := 0
				committed := make(chan error, 6)
				err := r.pool.InTx(r.Context(), TxOptions{}, func(ctx context.Context, tx *Tx) error {
					runs++
					require.NoError(r, tx.Savepoint(ctx, "s"))
					_, err := tx.Update(ctx, "SELECT 2")
					require.True(r, IsConflict(err))
					require.NoError(r, tx.RollbackTo(ctx, "s"))
					_, insert := tx.Update(ctx, "INSERT INTO t VALUES (1)")
					require.NoError(r, insert)
					r.srv.Faults().Set(testserver.Fault{On: testserver.OnEnd, Times: 1, After: true, Do: testserver.Delay(time.Second)})
					go func() { committed <- tx.Commit(ctx) }()
					synctest.Wait()
					if name == "fn fails" {
						return err
					}
					return nil
				})
				require.ErrorIs(r, err, ErrCommitUnknown)
				require.False(r, IsConflict(err) || SafeToRetry(err))
				require.Equal(r, 1, runs)
				require.ErrorIs(r, <-committed, ErrCommitUnknown)
				require.Equal(r, "1", r.value(r.pool, "SELECT count(*) FROM t"))
			})
		})
	}
}

func TestALostReplyToTheCommitOfATxIsTold(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		r.exec("CREATE TABLE t (a BIGINT)")
		runs := 0
		require.NoError(r, r.begin().Rollback(r.Context())) // the first learns of ids
		r.srv.Faults().Set(testserver.Fault{On: testserver.OnEnd, After: true, Times: 1, Do: testserver.Kill()})
		err := r.pool.InTx(r.Context(), TxOptions{}, func(ctx context.Context, tx *Tx) error {
			runs++
			_, err := tx.Update(ctx, "INSERT INTO t VALUES (1)")
			return err
		})
		require.ErrorIs(r, err, ErrCommitUnknown)
		require.False(r, IsConflict(err))
		require.Equal(r, 1, runs, "what may be stored is not stored again")
		require.Equal(r, "1", r.value(r.pool, "SELECT count(*) FROM t"))
	})
}

// A BEGIN stores nothing: a connection that has died unnoticed costs its caller no error.
func TestABeginIsRepeatedOnAnotherConnection(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		begins := r.srv.Faults().Set(testserver.Fault{On: testserver.OnBegin, Times: 1, Do: testserver.Kill()})
		tx := r.begin()
		require.Equal(r, 1, begins.Fired())
		require.NoError(r, tx.Rollback(r.Context()))
		require.EqualValues(r, 1, r.pool.Stats().Retries)
		r.srv.Faults().Set(testserver.Fault{On: testserver.OnBegin, Times: 2, Do: testserver.Kill()})
		_, err := r.pool.BeginTx(r.Context(), TxOptions{})
		require.ErrorIs(r, err, ErrSessionLost)
		require.ErrorContains(r, err, "the first attempt")
		require.Zero(r, r.pool.Stats().InUse)
	})
}

// A begin that got no connection has met none that died: its caller has waited as Config says, and the server was asked
// as often as that comes to.
func TestABeginThatGotNoConnectionIsNotRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		retry OpenRetry
		fails error
		took  time.Duration
		dials int
	}{
		"nobody waits for the next open":  {retry: OpenRetryNever, fails: errors.New("down"), dials: 1},
		"everybody waits, AcquireTimeout": {retry: OpenRetryAlways, fails: errors.New("down"), took: 2 * time.Second},
		"no repetition would cure it":     {fails: reservoir.Permanent(errors.New("refused")), dials: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var dials atomic.Int64
				retries := 0
				p, err := NewWith(t.Context(), func(context.Context) (backend.Conn, error) { dials.Add(1); return nil, c.fails }, Config{
					MinIdle: -1, MaxSize: 1, AcquireTimeout: 2 * time.Second, OpenRetry: c.retry, Hooks: Hooks{Retried: func(string, error) { retries++ }},
				})
				require.NoError(t, err)
				defer func() { require.NoError(t, p.Close(t.Context())) }()
				began := time.Now()
				_, err = p.BeginTx(t.Context(), TxOptions{})
				require.Error(t, err)
				require.Equal(t, FaultTransport, faultIn(err))
				require.NotContains(t, err.Error(), "the first attempt")
				require.Equal(t, c.took, time.Since(began))
				if c.dials > 0 {
					require.EqualValues(t, c.dials, dials.Load())
				}
				require.Zero(t, retries)
				require.Zero(t, p.Stats().Retries)
			})
		})
	}
}

func TestAForgottenTxIsTold(t *testing.T) {
	var leaks []reservoir.Leak
	cfg := Config{MaxSize: 1, LeakAfter: time.Minute, Hooks: Hooks{Connections: reservoir.Hooks{Leaked: func(l reservoir.Leak) { leaks = append(leaks, l) }}}}
	inBubble(t, testserver.Strict(), cfg, func(r *rig) {
		tx := r.begin()
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		require.Len(r, leaks, 1)
		require.Contains(r, fmt.Sprint(leaks[0].Stack), "TestAForgottenTxIsTold")
		require.NoError(r, tx.Rollback(r.Context()))
	})
}

// Transactions that collide run again until each has had its turn, and each counts once.
func TestTransactionsThatCollideRunAgain(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 8}, func(r *rig) {
		r.exec("CREATE TABLE t (id BIGINT, n BIGINT)")
		r.exec("INSERT INTO t VALUES (1, 0)")
		const adders = 8
		var wg sync.WaitGroup
		for range adders {
			wg.Go(func() {
				err := r.pool.InTx(r.Context(), TxOptions{Attempts: -1}, func(ctx context.Context, tx *Tx) error {
					var n int64
					if err := tx.QueryRow(ctx, "SELECT * FROM t WHERE id = 1").Scan(nil, &n); err != nil {
						return err
					}
					time.Sleep(ms)
					_, err := tx.Update(ctx, "UPDATE t SET n = ? WHERE id = 1", n+1)
					return err
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		var n int
		require.NoError(r, r.pool.QueryRow(r.Context(), "SELECT * FROM t").Scan(nil, &n))
		require.Equal(r, adders, n)
		require.NotZero(r, r.pool.Stats().Retries)
	})
}

// What fn and the server do decides whether a transaction runs again.
func TestWhatInTxRunsAgain(t *testing.T) {
	conflict := func(r *rig, on testserver.Point, code codes.Code, text string, times int) {
		r.srv.Faults().Set(testserver.Fault{On: on, SQL: "INSERT", Times: times, Do: testserver.Fail(code, text)})
	}
	for name, c := range map[string]struct {
		opts  TxOptions
		cfg   Config
		fault func(r *rig)
		ctx   time.Duration
		runs  int
		err   string
	}{
		"a conflict": {fault: func(r *rig) { conflict(r, testserver.OnStatement, codes.Internal, "write-write CONFLICT", 2) }, runs: 3},
		"a serialization failure": {fault: func(r *rig) {
			conflict(r, testserver.OnStatement, codes.Unknown, "ERROR: could not serialize access", 1)
		}, runs: 2},
		"an ABORTED":                {fault: func(r *rig) { conflict(r, testserver.OnStatement, codes.Aborted, "try again", 1) }, runs: 2},
		"conflicts without end":     {fault: func(r *rig) { conflict(r, testserver.OnStatement, codes.Internal, "conflict", 0) }, runs: 6, err: "attempt 6 of the transaction"},
		"as often as is allowed":    {opts: TxOptions{Attempts: 2}, fault: func(r *rig) { conflict(r, testserver.OnStatement, codes.Internal, "conflict", 0) }, runs: 2, err: "attempt 2"},
		"not with DisableRetry":     {cfg: Config{DisableRetry: true}, fault: func(r *rig) { conflict(r, testserver.OnStatement, codes.Internal, "conflict", 0) }, runs: 1, err: "conflict"},
		"not after another failure": {fault: func(r *rig) { conflict(r, testserver.OnStatement, codes.Internal, "syntax error at ON CONFLICT", 1) }, runs: 1, err: "syntax"},
		"not after a lost connection": {fault: func(r *rig) {
			r.srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: "INSERT", Times: 1, Do: testserver.Kill()})
		}, runs: 1, err: "session lost"},
		"not when the time is over": {opts: TxOptions{Attempts: -1}, ctx: time.Second, fault: func(r *rig) { conflict(r, testserver.OnStatement, codes.Internal, "conflict", 0) }, runs: -1, err: "deadline"},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.MaxSize = 1
			inBubble(t, testserver.Strict(), c.cfg, func(r *rig) {
				r.exec("CREATE TABLE t (a BIGINT)")
				c.fault(r)
				ctx := r.Context()
				if c.ctx > 0 {
					var stop context.CancelFunc
					ctx, stop = context.WithTimeout(ctx, c.ctx)
					defer stop()
				}
				runs, begun := 0, time.Now()
				err := r.pool.InTx(ctx, c.opts, func(ctx context.Context, tx *Tx) error {
					runs++
					_, err := tx.Update(ctx, "INSERT INTO t VALUES (1)")
					return err
				})
				if c.runs > 0 {
					require.Equal(r, c.runs, runs)
				} else {
					require.Equal(r, c.ctx, time.Since(begun))
				}
				stored := "0"
				if c.err == "" {
					require.NoError(r, err)
					stored = "1"
				} else {
					require.ErrorContains(r, err, c.err)
				}
				r.srv.Faults().Clear()
				require.Equal(r, stored, r.value(r.pool, "SELECT count(*) FROM t"))
				require.Zero(r, r.pool.Stats().InUse)
			})
		})
	}
}

// A conflict that fn keeps to itself is found at the commit.
func TestAConflictThatFnSwallowsIsFoundAtTheCommit(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		r.exec("CREATE TABLE t (a BIGINT)")
		r.srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: "INSERT", Times: 1, Do: testserver.Fail(codes.Internal, "conflict")})
		runs := 0
		require.NoError(r, r.pool.InTx(r.Context(), TxOptions{}, func(ctx context.Context, tx *Tx) error {
			runs++
			_, _ = tx.Update(ctx, "INSERT INTO t VALUES (1)")
			return nil
		}))
		require.Equal(r, 2, runs)
		require.Equal(r, "1", r.value(r.pool, "SELECT count(*) FROM t"))
	})
}

// A rollback that the server has not confirmed may have come after the server had left
// the transaction by itself.
func TestNothingRunsAgainWhileTheRollbackIsNotAnswered(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		r.exec("CREATE TABLE t (a BIGINT)")
		runs := 0
		err := r.pool.InTx(r.Context(), TxOptions{}, func(ctx context.Context, tx *Tx) error {
			runs++
			r.srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: "INSERT", Times: 1, Do: testserver.Fail(codes.Internal, "conflict")})
			r.srv.Faults().Set(testserver.Fault{On: testserver.OnEnd, Times: 1, Do: testserver.Delay(time.Minute)})
			_, err := tx.Update(ctx, "INSERT INTO t VALUES (1)")
			return err
		})
		require.ErrorContains(r, err, "conflict")
		require.ErrorContains(r, err, "no answer within CloseTimeout")
		require.Equal(r, 1, runs)
	})
}

// However fn leaves, InTx and WithSession keep no connection and commit nothing.
func TestInTxAndWithSessionOutliveTheirFunctions(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		r.exec("CREATE TABLE t (a BIGINT)")
		mine := errors.New("mine")
		leave := map[string]func(tx *Tx) error{
			"error":    func(*Tx) error { return mine },
			"panic":    func(*Tx) error { panic("x") },
			"Goexit":   func(*Tx) error { runtime.Goexit(); return nil },
			"rollback": func(tx *Tx) error { return tx.Rollback(r.Context()) },
			"unread": func(tx *Tx) error {
				_, err := tx.Query(r.Context(), "SELECT * FROM generate(200000)")
				return err
			},
		}
		for how, leave := range leave {
			errs := make(chan error, 1)
			go func() {
				err := errors.New("it did not return")
				defer func() { _ = recover(); errs <- err }()
				err = r.pool.InTx(r.Context(), TxOptions{}, func(ctx context.Context, tx *Tx) error {
					_, err := tx.Update(ctx, "INSERT INTO t VALUES (1)")
					require.NoError(r, err)
					return leave(tx)
				})
			}()
			err := <-errs
			require.Error(r, err, how)
			if how == "error" {
				require.Equal(r, mine, err)
			}
			require.Equal(r, "0", r.value(r.pool, "SELECT count(*) FROM t"), how)
			require.Zero(r, r.pool.Stats().InUse, how)
		}
		require.ErrorIs(r, r.pool.WithSession(r.Context(), func(ctx context.Context, s *SessionHandle) error {
			_, err := s.Update(ctx, "CREATE TEMP TABLE u (a BIGINT)")
			return errors.Join(mine, err)
		}), mine)
		require.Panics(r, func() {
			_ = r.pool.WithSession(r.Context(), func(context.Context, *SessionHandle) error { panic("x") })
		})
		require.Zero(r, r.pool.Stats().InUse)
		_, err := r.pool.Query(r.Context(), "SELECT * FROM u")
		require.Error(r, err)
	})
}

func TestASavepointOfATxLeadsBackFromAFailure(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		r.exec("CREATE TABLE t (a BIGINT)")
		tx := r.begin()
		defer func() { require.NoError(r, tx.Rollback(r.Context())) }()
		q, err := tx.PrepareQuery(r.Context(), "INSERT INTO t VALUES (?)")
		require.NoError(r, err)
		_, err = q.Update(r.Context(), 1)
		require.NoError(r, err)
		require.NoError(r, tx.Savepoint(r.Context(), "a"))
		_, err = tx.UpdateWithOptions(r.Context(), "SELECT error('x')", QueryOptions{})
		require.Error(r, err)
		require.NoError(r, tx.RollbackTo(r.Context(), "a"))
		require.NoError(r, tx.ReleaseSavepoint(r.Context(), "a"))
		rows := r.rows(2)
		n, err := tx.Ingest(r.Context(), "t", rows, IngestOptions{})
		require.NoError(r, err)
		require.EqualValues(r, 2, n)
		res, err := tx.QueryWithOptions(r.Context(), "SELECT count(*) FROM t", QueryOptions{})
		require.NoError(r, err)
		counts, err := CollectRows[int64](res, err)
		require.NoError(r, err)
		require.Equal(r, []int64{3}, counts)
		require.NoError(r, tx.Commit(r.Context()))
		require.Equal(r, "3", r.value(r.pool, "SELECT count(*) FROM t"))
	})
}

// A statement that fails for its own sake is not run again, whatever its table is named: with Attempts below 0 it would be
// until the context ends.
func TestNoNameInAStatementMakesItsFailureAConflict(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 2}, func(r *rig) {
		for _, table := range []string{"conflicts", "conflict", "deadlock"} {
			ctx, stop := context.WithTimeout(r.Context(), time.Hour)
			calls := 0
			err := r.pool.InTx(ctx, TxOptions{Attempts: -1}, func(ctx context.Context, tx *Tx) error {
				calls++
				_, err := tx.Update(ctx, "DELETE FROM "+table)
				return err
			})
			require.ErrorContains(r, err, table)
			require.NoError(r, ctx.Err())
			require.Equal(r, 1, calls, table)
			stop()
		}
	})
}

// Only what is known not to be stored is a conflict that may run again.
func TestWhatIsAConflict(t *testing.T) {
	fails := func(fault Fault, state string, err error) error {
		return fmt.Errorf("fn: %w", &Error{Op: "Update", Fault: fault, SQLState: state, Err: err})
	}
	conflict := fails(FaultStatement, "", status.Error(codes.Internal, "Transaction conflict"))
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("conflict"), false},
		{sql.ErrTxDone, false},
		{conflict, true},
		{fails(FaultStatement, "40001", errors.New("x")), true},
		{fails(FaultStatement, "40P01", errors.New("x")), true},
		{fails(FaultStatement, "23505", errors.New("duplicate key")), false},
		{fails(FaultStatement, "", errors.New("near ON CONFLICT: syntax error")), false},
		{fails(FaultStatement, "", errors.New(`Parser Error: syntax error at or near "ON CONFLICT"`)), false},
		{fails(FaultStatement, "", errors.New("Binder Error: The specified columns as conflict target are not referenced by a UNIQUE constraint")), false},
		{fails(FaultStatement, "", errors.New("Binder Error: Conflict target has to be provided for a DO UPDATE operation")), false},
		{fails(FaultStatement, "", errors.New("The INSERT statement conflicted with the FOREIGN KEY constraint")), false},
		{fails(FaultStatement, "", errors.New("TransactionContext Error: Conflict on update!")), true},
		{fails(FaultStatement, "", errors.New("TransactionContext Error: Failed to commit: write-write conflict on key")), true},
		{fails(FaultStatement, "", errors.New("update conflicts with concurrent update")), true},
		{fails(FaultStatement, "", errors.New("Transaction conflict on table t")), true},
		{fails(FaultStatement, "", errors.New("Deadlock found")), true},
		{fails(FaultStatement, "", errors.New("Transaction was deadlocked on lock resources with another process")), true},
		{fails(FaultStatement, "", errors.New("conflicting transactions")), true},
		{fails(FaultStatement, "", errors.New("TXN_WRITE_CONFLICT: commit again")), true},
		{fails(FaultStatement, "", errors.New("CommitConflictException: the table has changed")), true},
		{fails(FaultStatement, "", errors.New("WriteConflict")), true},
		{fails(FaultStatement, "", errors.New(`DuckDBFailure(Error { code: Unknown }, Some("TransactionContext Error: Conflict on tuple deletion!"))`)), true},
		{fails(FaultStatement, "", errors.New(`TransactionContext Error: Catalog write-write conflict on create with "t"`)), true},
		// What the statement has is no word of the server's.
		{fails(FaultStatement, "", errors.New("no such table: conflicts")), false},
		{fails(FaultStatement, "", errors.New("no such table: merge_conflict")), false},
		{fails(FaultStatement, "", errors.New("no such table: conflict_log")), false},
		{fails(FaultStatement, "", errors.New("table 'public.conflict' not found")), false},
		{fails(FaultStatement, "", errors.New(`no such column: "deadlock"`)), false},
		{fails(FaultStatement, "42P01", errors.New("relation conflict does not exist")), false},
		{fails(FaultStatement, "", errors.New("Catalog Error: Table with name conflict does not exist!\nDid you mean \"conflicts\"?\n\nLINE 1: SELECT * FROM conflict")), false},
		{fails(FaultStatement, "", errors.New("Binder Error: Referenced column \"a\" not found in FROM clause!\nLINE 1: SELECT a FROM conflict")), false},
		{fails(FaultStatement, "", errors.New("Conversion Error: Could not convert string 'merge conflict' to INT32")), false},
		{fails(FaultStatement, "", errors.New("Conversion Error: conversion error: deadlock")), false},
		{fails(FaultTransport, "", errors.New("conflict")), false},
		{fails(FaultStatement, "", nil), false},
		{&Error{Op: "Commit", Fault: FaultUsage, Err: fmt.Errorf("%w: %w", ErrTxAborted, conflict)}, true},
		{&Error{Op: "Commit", Fault: FaultStatement, Err: fmt.Errorf("%w: %w", ErrCommitUnknown, conflict)}, false},
		{&Error{Op: "Commit", Fault: FaultStatement, Err: fmt.Errorf("%w: duckdb error: TransactionContext Error: cannot commit - no transaction is active", ErrTxAborted)}, true},
		{&Error{Op: "Commit", Fault: FaultStatement, Err: fmt.Errorf("%w: TransactionContext Error: cannot commit - no transaction is active", ErrCommitUnknown)}, false},
		{fails(FaultStatement, "", errors.New("TransactionContext Error: cannot commit - no transaction is active")), false},
		{errors.Join(conflict, fails(FaultTransport, "", errors.New("rollback"))), false},
		{errors.Join(conflict, fails(FaultStatement, "", backend.ErrCommitUnknown)), false},
		{errors.Join(errors.New("mine"), conflict), true},
	} {
		require.Equal(t, c.want, IsConflict(c.err), "%v", c.err)
	}
}

// What the server may have stored in part is no conflict that may run again, unless it was
// in a transaction, which is rolled back.
func TestAConflictOfWhatMayBeStoredInPartRunsNotAgain(t *testing.T) {
	type changer interface {
		Querier
		UpdateWithOptions(ctx context.Context, sql string, opts QueryOptions) (UpdateResult, error)
		SendBatch(ctx context.Context, b *Batch) error
	}
	const script = "INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)"
	for name, c := range map[string]struct {
		partial bool
		run     func(ctx context.Context, q changer, params arrow.RecordBatch) error
	}{
		"a statement": {false, func(ctx context.Context, q changer, _ arrow.RecordBatch) error {
			_, err := q.Update(ctx, "INSERT INTO t VALUES (1)")
			return err
		}},
		"statements": {true, func(ctx context.Context, q changer, _ arrow.RecordBatch) error {
			_, err := q.Update(ctx, script)
			return err
		}},
		"rows of parameters": {true, func(ctx context.Context, q changer, params arrow.RecordBatch) error {
			_, err := q.UpdateWithOptions(ctx, "INSERT INTO t VALUES (?)", QueryOptions{Params: params})
			return err
		}},
		"a batch": {true, func(ctx context.Context, q changer, _ arrow.RecordBatch) error {
			var b Batch
			b.Queue(script)
			err := q.SendBatch(ctx, &b)
			var failed *BatchError
			_, inTx := q.(*Tx)
			if !errors.As(err, &failed) || failed.PartlyDone() == inTx {
				return errors.New("it does not tell what is stored")
			}
			return err
		}},
		"an ingestion": {true, func(ctx context.Context, q changer, _ arrow.RecordBatch) error {
			_, err := IngestRows(ctx, q, "t", slices.Values([]struct{ A int }{{1}, {2}}), IngestOptions{})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, testserver.Strict(), Config{MaxSize: 2}, func(r *rig) {
				r.exec("CREATE TABLE t (a BIGINT)")
				rows := r.rows(2)
				defer rows.Release()
				require.True(r, rows.Next())
				r.srv.Faults().Set(testserver.Fault{On: testserver.OnDoPut, Do: testserver.Fail(codes.Aborted, "conflict")})
				err := c.run(r.Context(), r.pool, rows.RecordBatch())
				require.ErrorContains(r, err, "Aborted: conflict")
				require.Equal(r, !c.partial, IsConflict(err))
				var e *Error
				require.ErrorAs(r, err, &e)
				require.Equal(r, c.partial, e.Partial)

				err = r.pool.InTx(r.Context(), TxOptions{Attempts: 2}, func(ctx context.Context, tx *Tx) error {
					return c.run(ctx, tx, rows.RecordBatch())
				})
				require.ErrorContains(r, err, "attempt 2")
				require.True(r, IsConflict(err))
			})
		})
	}
}

// A server that leaves transactions by itself says so once. What it refuses after that
// does not take it back.
func TestNothingRunsAgainThatTheServerMayHaveLeft(t *testing.T) {
	inBubble(t, testserver.SwanLake(), Config{MaxSize: 1}, func(r *rig) {
		r.exec("CREATE TABLE t (a BIGINT)")
		collide := func(ctx context.Context, q Querier) error {
			_, err := q.Update(ctx, "INSERT INTO t VALUES (1)")
			require.NoError(r, err)
			for i, code := range []codes.Code{codes.FailedPrecondition, codes.NotFound} {
				r.srv.Faults().Set(testserver.Fault{On: testserver.OnEnd, Skip: i, Times: 1, Do: testserver.Fail(code, "no transaction")})
			}
			r.srv.Faults().Set(testserver.Fault{On: testserver.OnBegin, Times: 1, Do: testserver.Fail(codes.Internal, "cannot begin")})
			r.srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: "INSERT", Times: 1, Do: testserver.Fail(codes.Internal, "conflict")})
			_, err = q.Update(ctx, "INSERT INTO t VALUES (2)")
			return err
		}
		runs := 0
		err := r.pool.InTx(r.Context(), TxOptions{}, func(ctx context.Context, tx *Tx) error { runs++; return collide(ctx, tx) })
		require.ErrorIs(r, err, ErrCommitUnknown)
		require.Equal(r, 1, runs)
		s := r.session()
		err = s.WithTransaction(r.Context(), func(ctx context.Context, s *SessionHandle) error { return collide(ctx, s) })
		require.ErrorIs(r, err, ErrCommitUnknown)
		require.False(r, IsConflict(err))
		_ = s.Close()
	})
}

// A server that ends savepoints by their names means its latest of a name. That may be one whose
// Savepoint was cut, or refused once it was made.
func TestASavepointThatTheHandleDoesNotCountTakesNoNamesake(t *testing.T) {
	for name, fault := range map[string]testserver.Effect{"cut": testserver.Delay(time.Second), "failed": testserver.Fail(codes.Internal, "no")} {
		inBubble(t, testserver.Strict(), Config{}, func(r *rig) {
			r.exec("CREATE TABLE t (a BIGINT)")
			require.NoError(r, r.pool.InTx(r.Context(), TxOptions{}, func(ctx context.Context, tx *Tx) error {
				require.NoError(r, tx.Savepoint(ctx, "sp"))
				_, err := tx.Update(ctx, "INSERT INTO t VALUES (1)")
				require.NoError(r, err)
				r.srv.Faults().Set(testserver.Fault{On: "BeginSavepoint", After: true, Times: 1, Do: fault})
				short, stop := context.WithTimeout(ctx, 100*ms)
				defer stop()
				require.Error(r, tx.Savepoint(short, "sp"))
				require.NoError(r, tx.RollbackTo(ctx, "sp"))
				_, err = tx.Update(ctx, "INSERT INTO t VALUES (2)")
				return err
			}))
			require.Equal(r, "2", r.value(r.pool, "SELECT * FROM t"), name)
		})
	}
}
