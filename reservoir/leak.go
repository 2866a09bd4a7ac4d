package reservoir

import (
	"fmt"
	"runtime"
	"strings"
	"time"
)

// A trace is where a loan was taken: kept as bare addresses, in place, because
// it is written at every acquire and read hardly ever.
type trace struct {
	pcs      [16]uintptr
	n        int
	reported bool
}

func (t *trace) record() {
	t.n = runtime.Callers(2, t.pcs[:])
	t.reported = false
}

// String names the callers, without the frames of this package.
func (t *trace) String() string {
	var b strings.Builder
	frames := runtime.CallersFrames(t.pcs[:t.n])
	for {
		f, more := frames.Next()
		if !strings.Contains(f.Function, "/reservoir.(*Reservoir[") && f.Function != "" {
			fmt.Fprintf(&b, "%s\n\t%s:%d\n", f.Function, f.File, f.Line)
		}
		if !more {
			return b.String()
		}
	}
}

// findLeak reports a loan that is out too long, once, and returns when to look
// at this connection again. The caller holds mu.
func (r *Reservoir[C]) findLeak(e *entry[C], now int64, fx *effects[C]) int64 {
	if r.cfg.LeakAfter <= 0 || e.state != loaned || e.trace.reported {
		return never
	}
	held := now - e.borrowed
	if held < int64(r.cfg.LeakAfter) {
		return e.borrowed + int64(r.cfg.LeakAfter)
	}
	e.trace.reported = true
	r.mu.stats.Leaks++
	if leaked := r.cfg.Hooks.Leaked; leaked != nil {
		leak := Leak{Held: time.Duration(held), Stack: e.trace.String()}
		fx.later(func() { leaked(leak) })
	}
	return never
}
