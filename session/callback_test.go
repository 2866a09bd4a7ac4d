package session

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// panickyContext panics when it is asked for what name says.
type panickyContext struct {
	context.Context
	deadline, err bool
}

func (c *panickyContext) Deadline() (time.Time, bool) {
	if c.deadline {
		panic("the caller's")
	}
	return c.Context.Deadline()
}

func (c *panickyContext) Err() error {
	if c.err {
		panic("the caller's")
	}
	return c.Context.Err()
}

// A panic of what the caller has given goes on in the caller, and the handle goes
// on too.
func TestAPanicOfTheCallersOwnCostsTheCallAlone(t *testing.T) {
	batch := int64Batch(1)
	for name, call := range map[string]func(t *testing.T, r *rig) (context.Context, error){
		"a context's deadline": func(t *testing.T, r *rig) (context.Context, error) {
			_, err := r.handle.Update(&panickyContext{Context: t.Context(), deadline: true}, "INSERT 1")
			return nil, err
		},
		"a context's error": func(t *testing.T, r *rig) (context.Context, error) {
			_, err := r.handle.Update(&panickyContext{Context: t.Context(), err: true}, "INSERT 1")
			return nil, err
		},
		"parameters": func(t *testing.T, r *rig) (context.Context, error) {
			r.conn.useParams = func() { panic("the caller's") }
			_, err := r.handle.UpdateWithRecordBatch(t.Context(), "INSERT 1", batch)
			return nil, err
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{})
			require.PanicsWithValue(t, "the caller's", func() { _, _ = call(t, r) }, name)
			r.conn.useParams = nil
			time.Sleep(time.Minute)
			_, err := r.handle.Update(t.Context(), "INSERT 2")
			require.NoError(t, err, name)
			must(t, r.handle.Close())
			r.clean(name)
			require.Len(t, r.returns, 1)
		})
	}
}

// While Close cleans up, the handle takes no call and is not closed again.
func TestAHandleThatIsBeingClosedTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{work: map[string]time.Duration{"Rollback": time.Second}})
		must(t, r.handle.BeginTransaction(t.Context()))
		time.AfterFunc(500*ms, func() {
			_, err := r.handle.Update(t.Context(), "INSERT 1")
			require.ErrorIs(t, err, ErrHandleClosed)
			must(t, r.handle.Close())
		})
		must(t, r.handle.Close())
		time.Sleep(time.Minute)
		r.reused()
		require.Equal(t, []string{"Begin", "Rollback"}, r.conn.Log())
	})
}

// What a result held is not the caller's any more once it has ended.
func TestAResultThatIsOverHoldsNoBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		res, err := r.handle.Query(t.Context(), "SELECT 3")
		must(t, err)
		require.True(t, res.Next())
		must(t, res.Close())
		require.Nil(t, res.RecordBatch())
		require.False(t, res.Next())
		res.Release()
		must(t, r.handle.Close())
	})
}

// A call waits for the one before it that is being ended, no longer than its own
// context; the error says what it has waited for.
func TestACallThatWaitsForTheOneBeforeSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_, err := r.handle.UpdateWithOptions(ctx, "UPDATE SLOW 1m", QueryOptions{NoCancel: true})
		require.Error(t, err)
		short, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		err = r.handle.Ping(short)
		require.ErrorContains(t, err, "the previous call of the session is still being ended")
		require.True(t, SafeToRetry(err))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		must(t, r.handle.Ping(t.Context()))
		must(t, r.handle.Close())
		r.reused()
	})
}
