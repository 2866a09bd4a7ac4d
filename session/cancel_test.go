package session

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/cancel"
)

const ms = time.Millisecond

func TestTheCallerReturnsWithItsContextAndTheSessionIsReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		start := time.Now()
		_, err := r.stateless().Query(ctx, "SELECT SLOW 1h")
		require.Equal(t, 20*ms, time.Since(start))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, FaultContext, FaultIn(err))
		synctest.Wait()
		r.reused()
		require.Equal(t, "rpc", r.chains()[0].By)
	})
}

func TestAStatementThatIgnoresTheCancelCostsItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{ignoresCancel: true})
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		_, err := r.stateless().Query(ctx, "SELECT SLOW 1h")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(5*time.Second - ms)
		synctest.Wait()
		r.held("it may still confirm within its budget")
		time.Sleep(2 * ms)
		require.ErrorContains(t, r.discarded(), "may still run")
	})
}

func TestAStatementThatEndsWithinTheBudgetSavesItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{ignoresCancel: true})
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		_, err := r.stateless().Update(ctx, "UPDATE SLOW 3s")
		require.Error(t, err)
		time.Sleep(4 * time.Second)
		r.reused()
	})
}

func TestTheServerIsAskedOnceTheRPCHasNotHelped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &fakeConn{ignoresCancel: true}
		asked := time.Duration(0)
		start := time.Now()
		conn.steps = func(op *Operation) []cancel.Step {
			require.Equal(t, "SELECT SLOW 1h", op.Name())
			return []cancel.Step{
				{Name: "CancelFlightInfo", Timeout: time.Second, Do: func(context.Context) (cancel.Outcome, error) {
					return cancel.Unsupported, errors.New("unimplemented")
				}},
				{Name: "CancelQuery", Timeout: time.Second, Do: func(context.Context) (cancel.Outcome, error) {
					asked = time.Since(start)
					conn.mu.Lock()
					conn.freeAt = time.Now().Add(10 * ms)
					conn.mu.Unlock()
					return cancel.Requested, nil
				}},
				{Name: "never", Timeout: time.Second, Do: func(context.Context) (cancel.Outcome, error) {
					t.Error("the way before had worked")
					return cancel.Failed, nil
				}},
			}
		}
		r := newRig(t, conn)
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		_, err := r.stateless().Query(ctx, "SELECT SLOW 1h")
		require.Error(t, err)
		time.Sleep(time.Second)
		r.reused()
		require.Equal(t, 20*ms+250*ms, asked, "after the grace")
		require.Equal(t, "CancelQuery", r.chains()[0].By)
	})
}

func TestAnUnansweredCancelCostsTheConnectionEvenWhenTheStatementEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &fakeConn{ignoresCancel: true}
		conn.steps = func(*Operation) []cancel.Step {
			return []cancel.Step{{Name: "CancelFlightInfo", Timeout: 100 * ms, Do: func(ctx context.Context) (cancel.Outcome, error) {
				<-ctx.Done() // the request is out there, somewhere
				return cancel.Failed, ctx.Err()
			}}}
		}
		r := newRig(t, conn)
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		_, err := r.stateless().Query(ctx, "SELECT SLOW 1s")
		require.Error(t, err)
		time.Sleep(10 * time.Second)
		require.ErrorContains(t, r.discarded(), "unanswered")
	})
}

func TestAHandleGoesOnAfterAConfirmedCancelAndIsLostAfterAnUnconfirmedOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		_, err := r.handle.Query(ctx, "SELECT SLOW 1h")
		require.Error(t, err)
		_, err = r.handle.Update(t.Context(), "INSERT 1") // waits for the outcome
		require.NoError(t, err)

		r.conn.ignoresCancel = true
		ctx, stop = context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		_, err = r.handle.Query(ctx, "SELECT SLOW 1h")
		require.Error(t, err)
		short, stop := context.WithTimeout(t.Context(), 50*ms)
		defer stop()
		_, err = r.handle.Update(short, "INSERT 2")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, SafeToRetry(err), "nothing of it was sent")
		_, err = r.handle.Update(t.Context(), "INSERT 3")
		require.ErrorIs(t, err, ErrSessionLost)
		_ = r.discarded()
		must(t, r.handle.Close())
		_ = r.discarded()
		require.NotContains(t, r.conn.Log(), "INSERT 2")
		require.NotContains(t, r.conn.Log(), "INSERT 3")
	})
}

func TestACancelledStatementRollsItsTransactionBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		must(t, r.handle.BeginTransaction(t.Context()))
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		_, err := r.handle.Update(ctx, "UPDATE SLOW 1h")
		require.Error(t, err)
		_, err = r.handle.Update(t.Context(), "INSERT 1")
		require.ErrorIs(t, err, ErrTxAborted)
		require.ErrorIs(t, r.handle.Commit(t.Context()), ErrTxAborted)
		require.Equal(t, []string{"Begin", "tx1: UPDATE SLOW 1h", "Rollback"}, r.conn.Log(), "rolled back once, by the chain")
		must(t, r.handle.BeginTransaction(t.Context()))
		must(t, r.handle.Commit(t.Context()))
		must(t, r.handle.Close())
		r.reused()
	})
}

func TestADeadlineDuringAResultEndsItAlthoughNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		res, err := r.stateless().Query(ctx, "SELECT 5")
		must(t, err)
		require.True(t, res.Next())
		batch := res.RecordBatch()
		time.Sleep(20 * ms)
		synctest.Wait()
		r.reused()
		require.EqualValues(t, 1, batch.NumRows(), "the batch in the caller's hands stays valid")
		require.False(t, res.Next())
		require.ErrorIs(t, res.Err(), context.DeadlineExceeded)
		res.Release()
		r.clean()
	})
}

func TestTimeoutOfTheOptionsAndOfThePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		r.policy.QueryTimeout = 30 * ms
		start := time.Now()
		_, err := r.handle.Query(t.Context(), "SELECT SLOW 1h")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 30*ms, time.Since(start))
		_, err = r.handle.QueryWithOptions(t.Context(), "SELECT SLOW 1h", QueryOptions{Timeout: 10 * ms})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		res, err := r.handle.QueryWithOptions(t.Context(), "SELECT SLOW 1s", QueryOptions{Timeout: -1})
		must(t, err)
		res.Release()
	})
}

func TestNoCancelLeavesTheStatementToItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		start := time.Now()
		_, err := r.stateless().UpdateWithOptions(ctx, "UPDATE SLOW 1s", QueryOptions{NoCancel: true})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 20*ms, time.Since(start))
		time.Sleep(970 * ms)
		r.held("the statement is still at work")
		time.Sleep(20 * ms)
		r.reused()
		require.Empty(t, r.chains(), "nothing was cancelled")
	})
}

func TestNoCancelOfAResultDrainsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		res, err := r.stateless().QueryWithOptions(ctx, "SELECT 3", QueryOptions{NoCancel: true})
		must(t, err)
		time.Sleep(30 * ms)
		r.reused()
		require.False(t, res.Next())
		require.ErrorIs(t, res.Err(), context.DeadlineExceeded)
		res.Release()
		require.Empty(t, r.chains())
	})
}

func TestCloseDuringACallCancelsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		failed := make(chan error)
		go func() {
			_, err := r.handle.Update(t.Context(), "UPDATE SLOW 1h")
			failed <- err
		}()
		synctest.Wait()
		must(t, r.handle.Close())
		require.Error(t, <-failed)
		synctest.Wait()
		r.reused()
		require.Len(t, r.chains(), 1)
	})
}

func TestAnEndedContextSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		ctx, stop := context.WithCancel(t.Context())
		stop()
		_, err := r.stateless().Update(ctx, "INSERT 1")
		require.ErrorIs(t, err, context.Canceled)
		require.True(t, SafeToRetry(err))
		require.Empty(t, r.conn.Log())
		r.reused()
	})
}
