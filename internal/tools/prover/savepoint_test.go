package prover

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/flightpool/flightpool/flightpool"
)

// save is a savepoint of an open transaction.
type save struct {
	name  string
	since []*token // stored behind it, and before the next
}

// savepoint sets one, goes back to it or frees it.
func (w *world) savepoint(s step, a *actor) {
	t, name := a.tx, cmp.Or(s.arg(0), "s")
	if t == nil && s.verb == "save" {
		w.endOfNothing(s, func(ctx context.Context) error { return a.handle.Savepoint(ctx, name) })
	}
	if t == nil || t.ended != open {
		return
	}
	at := lastSave(t, name)
	impossible := s.verb != "save" && at < 0
	if s.verb != "back" && t.failed {
		return // it may be sound all the same, as after a panic in a loop over rows
	}
	err := w.call(s, func(ctx context.Context) error {
		switch s.verb {
		case "save":
			return a.handle.Savepoint(ctx, name)
		case "back":
			return a.handle.RollbackTo(ctx, name)
		default:
			return a.handle.ReleaseSavepoint(ctx, name)
		}
	})
	if impossible && err == nil && t.ended == open {
		w.breaks("failure unnoticed", "%q", s)
	}
	if impossible {
		return // a name that is not known changes nothing
	}
	w.judge(s, a, err)
	if err != nil || t.ended != open {
		var e *flightpool.Error
		if errors.As(err, &e) && e.Fault != flightpool.FaultUsage && e.Fault != flightpool.FaultUnsupported {
			t.failed = true // also by a failure of which nothing was sent
		}
		return
	}
	switch s.verb {
	case "save":
		t.saves = append(t.saves, save{name: name})
	case "back":
		t.failed, t.told = false, false // it leads out of the aborted state
		for _, of := range t.saves[at:] {
			for _, token := range of.since {
				token.tx, token.alone = nil, never
			}
		}
		t.saves = append(t.saves[:at], save{name: name})
	case "free":
		if at > 0 {
			for _, of := range t.saves[at:] {
				t.saves[at-1].since = append(t.saves[at-1].since, of.since...)
			}
		}
		t.saves = t.saves[:at]
	}
}

// lastSave is where the latest savepoint of a name is, negative if there is none.
func lastSave(t *tx, name string) int {
	for i, of := range slices.Backward(t.saves) {
		if of.name == name {
			return i
		}
	}
	return -1
}
