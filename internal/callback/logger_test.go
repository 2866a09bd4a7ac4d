package callback

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// failing is a handler that fails where it is told to.
type failing struct {
	slog.Handler
	how            func()
	at             string
	handled, asked *int
}

func (f failing) fail(at string) {
	if f.at == at {
		f.how()
	}
}

func (f failing) Enabled(ctx context.Context, l slog.Level) bool {
	*f.asked++
	f.fail("Enabled")
	return f.Handler.Enabled(ctx, l)
}

func (f failing) Handle(ctx context.Context, r slog.Record) error {
	*f.handled++
	f.fail("Handle")
	return f.Handler.Handle(ctx, r)
}

func (f failing) WithAttrs(attrs []slog.Attr) slog.Handler {
	f.fail("WithAttrs")
	f.Handler = f.Handler.WithAttrs(attrs)
	return f
}

func (f failing) WithGroup(name string) slog.Handler {
	f.fail("WithGroup")
	f.Handler = f.Handler.WithGroup(name)
	return f
}

// What a logger's handler does beside logging has no consequence, and what it logs is what it is told.
func TestALoggerThatFailsFailsNobody(t *testing.T) {
	for name, how := range map[string]func(){"a panic": func() { panic("the user's") }, "the end of its goroutine": runtime.Goexit} {
		for _, at := range []string{"", "Enabled", "Handle", "WithAttrs", "WithGroup"} {
			var out bytes.Buffer
			var handled, asked int
			text := slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			}})
			l := Logger(slog.New(failing{text, how, at, &handled, &asked}))
			require.Same(t, l, Logger(l))
			l.With("a", 1).WithGroup("g").Warn("hello", "b", 2)
			want := map[string]string{
				"": "level=WARN msg=hello a=1 g.b=2\n", "WithAttrs": "level=WARN msg=hello g.b=2\n", "WithGroup": "level=WARN msg=hello a=1 b=2\n",
			}[at]
			require.Equal(t, want, out.String(), "%s at %s", name, at)
			require.Equal(t, 1, asked)
		}
	}
}
