package poolz

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/flightpool/flightpool/reservoir"
)

// connectionState is one open connection.
type connectionState struct {
	ID       uint64     `json:"id"`
	User     string     `json:"user,omitempty"`
	State    string     `json:"state"` // borrowed, checking or idle
	Opened   time.Time  `json:"opened"`
	Expires  *time.Time `json:"expires,omitempty"`
	Used     time.Time  `json:"used"` // since when it is in that state, or about
	Loans    uint64     `json:"loans"`
	Borrower string     `json:"borrower,omitempty"`
	Stack    []string   `json:"stack,omitempty"` // where it was borrowed, with LeakAfter

	// Of the latest call that is known: what it does and for how long it runs or has run.
	Op        string  `json:"op,omitempty"`
	Statement string  `json:"statement,omitempty"`
	Took      seconds `json:"took,omitempty"`
	Running   bool    `json:"running,omitempty"`

	borrowed *reservoir.BorrowStack
}

const (
	inUse    = "borrowed"
	checking = "checking"
	isIdle   = "idle"
)

// connections are the first rows of the open connections, those that were borrowed first
// before all, and how many there are. What the tracer knows is asked for those alone.
func (p *Page) connections(s *source, now time.Time, rows int) ([]connectionState, int) {
	all := s.open()
	rank := func(c connectionState) int { return slices.Index([]string{inUse, checking, isIdle}, c.State) }
	slices.SortFunc(all, func(a, b connectionState) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Used.Compare(b.Used), cmp.Compare(a.ID, b.ID))
	})
	open := len(all)
	all = slices.Clip(all[:min(rows, open)])
	for i := range all {
		c := &all[i]
		c.describeUse(p.latest.of(c.ID), now)
		c.Stack = framesOf(c.borrowed)
		c.Opened, c.Used = onClock(now, c.Opened), onClock(now, c.Used)
		if c.Expires != nil {
			*c.Expires = onClock(now, *c.Expires)
		}
	}
	return all, open
}

// onClock is a time by the clock as it is now, which may have been set since then.
func onClock(now, t time.Time) time.Time { return now.Add(t.Sub(now)) }

// open are the open connections of a source.
func (s *source) open() []connectionState {
	if s.pool != nil {
		return s.ofPool()
	}
	return s.ofServer()
}

func (s *source) ofPool() []connectionState {
	open := s.pool.Connections()
	all := make([]connectionState, len(open))
	for i, c := range open {
		row := connectionState{ID: c.ID, State: isIdle, Opened: c.Opened, Used: c.Used, Loans: c.Loans, borrowed: c.Borrower}
		switch {
		case c.OnLoan:
			row.State = inUse
		case c.InUse:
			row.State = checking
		}
		if !c.Expires.IsZero() {
			row.Expires = &c.Expires
		}
		all[i] = row
	}
	return all
}

func (s *source) ofServer() []connectionState {
	open, _ := s.registry.Connections(s.server) // none where the server is gone
	all := make([]connectionState, len(open))
	for i, c := range open {
		all[i] = connectionState{ID: c.ID, User: c.User, State: isIdle, Opened: c.OpenedAt, Used: c.UsedAt, Loans: c.Uses, borrowed: c.Borrower}
		if c.InUse {
			all[i].State = inUse
		}
	}
	return all
}

// describeUse adds what the tracer knows. It is told of a loan after that has begun.
func (c *connectionState) describeUse(b borrowing, now time.Time) {
	if c.State == inUse {
		c.Borrower = b.borrower
	}
	if b.call == nil {
		return
	}
	c.Op, c.Statement = b.call.op, b.call.statement
	took := time.Duration(b.call.took.Load())
	if c.Running = took == 0 && c.State == inUse; c.Running {
		took = max(0, now.Sub(b.call.began))
	}
	c.Took = seconds(took.Seconds())
}

// maxFrames is how many callers are shown of a borrower.
const maxFrames = 12

// framesOf are the functions that have borrowed a connection, the innermost first, each with
// its file and line. Folders are left out: they tell of the machine that built the program.
func framesOf(t *reservoir.BorrowStack) (all []string) {
	if t == nil {
		return nil
	}
	for f := range t.Frames() {
		if all = append(all, fmt.Sprintf("%s %s:%d", f.Function, filepath.Base(f.File), f.Line)); len(all) == maxFrames {
			break
		}
	}
	return all
}
