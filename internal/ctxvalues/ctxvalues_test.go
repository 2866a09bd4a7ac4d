package ctxvalues

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

type key struct{}

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
