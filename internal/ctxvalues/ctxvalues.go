// Package ctxvalues takes the values of one context and the end of another.
package ctxvalues

import "context"

// From is ctx with the values of another context before its own; nil changes nothing.
// Neither the end nor the deadline nor the cause of the other counts.
func From(ctx, values context.Context) context.Context {
	if values == nil {
		return ctx
	}
	return joined{ctx, context.WithoutCancel(values)}
}

type joined struct {
	context.Context                 //nolint:containedctx // it is one
	values          context.Context //nolint:containedctx // where values are looked for first
}

// Value looks in both, since package context finds by a value of its own, which values
// does not show, whom a context ends with and why.
func (j joined) Value(key any) any {
	if v := j.values.Value(key); v != nil {
		return v
	}
	return j.Context.Value(key)
}
