package engine

import "context"

type asideKey struct{}

// WithAside has Aside run its waits through f.
func WithAside(ctx context.Context, f func(wait func() error) error) context.Context {
	return context.WithValue(ctx, asideKey{}, f)
}

// Aside waits. An engine that waits through it while a statement runs lets the
// session's other statements run meanwhile, where the server has them run side
// by side. ctx is the statement's.
func Aside(ctx context.Context, wait func() error) error {
	if f, ok := ctx.Value(asideKey{}).(func(func() error) error); ok {
		return f(wait)
	}
	return wait()
}
