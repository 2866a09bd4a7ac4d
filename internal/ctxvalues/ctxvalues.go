// Package ctxvalues takes the values of one context and the end of another.
package ctxvalues

import "context"

// From is ctx with the values of another context; nil changes nothing. Neither the end
// nor the deadline of the other counts.
func From(ctx, values context.Context) context.Context {
	if values == nil {
		return ctx
	}
	return joined{ctx, values}
}

type joined struct {
	context.Context                 //nolint:containedctx // it is one
	values          context.Context //nolint:containedctx // where values are looked for
}

func (j joined) Value(key any) any { return j.values.Value(key) }
