package ctxvalues

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

type (
	key      struct{}
	otherKey struct{}
)

func TestTheValuesAreOfOneContextAndTheEndOfAnother(t *testing.T) {
	why := errors.New("over")
	caller, end := context.WithCancelCause(t.Context())
	values, endValues := context.WithCancel(context.WithValue(caller, key{}, 7))
	ctx := From(caller, values)
	require.Equal(t, 7, ctx.Value(key{}))
	child, stop := context.WithCancel(ctx)
	defer stop()
	endValues()
	require.NoError(t, ctx.Err())
	require.NoError(t, child.Err())
	end(why)
	<-child.Done()
	require.ErrorIs(t, ctx.Err(), context.Canceled)
	require.NoError(t, From(t.Context(), values).Err(), "not even through a parent")
	require.Equal(t, caller, From(caller, nil))
}

// context.Cause asks for a value.
func TestTheCauseIsThatOfTheEnd(t *testing.T) {
	why, other := errors.New("over"), errors.New("not this")
	values, endValues := context.WithCancelCause(context.WithValue(t.Context(), key{}, 7))
	defer endValues(nil)
	for _, values := range []context.Context{values, context.WithValue(context.Background(), key{}, 7)} {
		ctx, end := context.WithCancelCause(t.Context())
		ctx = From(ctx, values)
		ctx = From(ctx, context.WithValue(ctx, otherKey{}, 8))
		child, stop := context.WithCancel(ctx)
		defer stop()
		endValues(other)
		require.NoError(t, context.Cause(ctx))
		require.NoError(t, context.Cause(child))
		end(why)
		<-child.Done()
		require.Equal(t, why, context.Cause(ctx))
		require.Equal(t, why, context.Cause(child))
		require.Equal(t, 7, child.Value(key{}))
		require.Equal(t, 8, child.Value(otherKey{}))
	}
}

func TestAChildNeedsNoGoroutineToHearOfTheEnd(t *testing.T) {
	caller, end := context.WithCancel(t.Context())
	defer end()
	values, endValues := context.WithCancel(context.WithValue(caller, key{}, 7))
	defer endValues()
	ctx := From(caller, values)
	before := runtime.NumGoroutine()
	for range 10 {
		_, stop := context.WithCancel(ctx)
		defer stop()
	}
	require.Equal(t, before, runtime.NumGoroutine())
}
