package callback

import (
	"context"
	"log/slog"
)

// Logger is a logger of the user's that the goroutines of a pool or a budget may use: what
// its handler does beside logging, a panic for one, has no other consequence than that
// nothing is logged.
func Logger(l *slog.Logger) *slog.Logger {
	if _, is := l.Handler().(isolatedHandler); is {
		return l
	}
	return slog.New(isolatedHandler{l.Handler()})
}

type isolatedHandler struct{ of slog.Handler }

func (h isolatedHandler) Enabled(ctx context.Context, level slog.Level) (enabled bool) {
	_ = Isolate("Logger", func() error { enabled = h.of.Enabled(ctx, level); return nil })
	return enabled
}

func (h isolatedHandler) Handle(ctx context.Context, r slog.Record) error {
	return Isolate("Logger", func() error { return h.of.Handle(ctx, r) })
}

func (h isolatedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.derived(func() slog.Handler { return h.of.WithAttrs(attrs) })
}

func (h isolatedHandler) WithGroup(name string) slog.Handler {
	return h.derived(func() slog.Handler { return h.of.WithGroup(name) })
}

// derived is h itself where its handler makes no other.
func (h isolatedHandler) derived(derive func() slog.Handler) slog.Handler {
	var of slog.Handler
	if err := Isolate("Logger", func() error { of = derive(); return nil }); err != nil || of == nil {
		return h
	}
	return isolatedHandler{of}
}
