// Package tracers calls the user's tracers, one after the other, each with the context that
// the one before has returned. A panic in one is told, and has no other consequence; one
// that ends the goroutine does not keep the others from being told of an end.
package tracers

import (
	"context"

	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/ctxvalues"
)

// userCode names tracers in the errors of package callback.
const userCode = "a callback"

// AppendIf adds a tracer to the list of those that implement T, if it does.
func AppendIf[T any](list *[]T, tracer any) bool {
	t, ok := tracer.(T)
	if ok {
		*list = append(*list, t)
	}
	return ok
}

// Start tells tracers of a start. The context that comes back has the values of those
// that they return, and the end of ctx.
func Start[T any](ctx context.Context, failed func(error), all []T, start func(T, context.Context) context.Context) context.Context {
	values := ctx
	for _, tracer := range all {
		if told := guarded(failed, func() context.Context { return start(tracer, values) }); told != nil {
			values = told //nolint:fatcontext // one for each tracer
		}
	}
	return ctxvalues.From(ctx, values)
}

// End tells tracers of an end, in the reverse of their order; also those behind one
// that ends the goroutine.
func End[T any](failed func(error), all []T, end func(T)) {
	for _, tracer := range all {
		defer guarded(failed, func() struct{} { end(tracer); return struct{}{} }) // there are few
	}
}

// guarded is what f returns, or nothing if it panics.
func guarded[T any](failed func(error), f func() T) (v T) {
	callback.Guard(userCode, func() error { v = f(); return nil }, func(err error) {
		if err != nil {
			failed(err)
		}
	})
	return v
}

// Isolated is what f returns, on a goroutine of its own, which f may end, or nothing if it
// panics.
func Isolated[T any](failed func(error), f func() T) (v T) {
	if err := callback.Isolate(userCode, func() error { v = f(); return nil }); err != nil {
		failed(err)
	}
	return v
}
