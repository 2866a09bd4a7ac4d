package poolz

import (
	"cmp"
	"slices"
	"time"
)

// connectionState is one open connection.
type connectionState struct {
	ID       uint64     `json:"id"` // 0: not known
	User     string     `json:"user,omitempty"`
	State    string     `json:"state"` // on loan, checking or idle
	Opened   time.Time  `json:"opened"`
	Expires  *time.Time `json:"expires,omitempty"`
	Used     time.Time  `json:"used"` // since when it is in that state, or about
	Loans    uint64     `json:"loans"`
	Borrower string     `json:"borrower,omitempty"`

	// Of the latest call that is known: what it does and for how long it runs or has run.
	Op        string  `json:"op,omitempty"`
	Statement string  `json:"statement,omitempty"`
	Took      seconds `json:"took,omitempty"`
	Running   bool    `json:"running,omitempty"`
}

const (
	onLoan   = "on loan"
	checking = "checking"
	isIdle   = "idle"
)

// connections are the first rows of the open connections, those that were borrowed first
// before all, and how many there are.
func (s *source) connections(rows int) ([]connectionState, int) {
	all := []connectionState{}
	if s.pool != nil {
		all = s.ofPool()
	} else {
		all = s.ofServer(all)
	}
	rank := func(c connectionState) int { return slices.Index([]string{onLoan, checking, isIdle}, c.State) }
	slices.SortFunc(all, func(a, b connectionState) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Used.Compare(b.Used), cmp.Compare(a.ID, b.ID))
	})
	return slices.Clip(all[:min(rows, len(all))]), len(all)
}

func (s *source) ofPool() []connectionState {
	open := s.pool.Connections()
	all := make([]connectionState, len(open))
	known := map[uint64]borrowing{}
	if s.watcher != nil {
		known = s.watcher.of(open)
	}
	for i, c := range open {
		row := connectionState{ID: c.ID, State: isIdle, Opened: c.Opened, Used: c.Used, Loans: c.Loans}
		switch {
		case c.OnLoan:
			row.State = onLoan
		case c.InUse:
			row.State = checking
		}
		if !c.Expires.IsZero() {
			row.Expires = &c.Expires
		}
		row.describeUse(known[c.ID])
		all[i] = row
	}
	return all
}

// describeUse adds what the tracer knows. It is told of a loan after that has begun.
func (c *connectionState) describeUse(b borrowing) {
	if c.State == onLoan {
		c.Borrower = b.borrower
	}
	if b.call == nil {
		return
	}
	c.Op, c.Statement = b.call.op, b.call.statement
	took := time.Duration(b.call.took.Load())
	if c.Running = took == 0 && c.State == onLoan; c.Running {
		took = time.Since(b.call.began)
	}
	c.Took = seconds(took.Seconds())
}

func (s *source) ofServer(all []connectionState) []connectionState {
	open, err := s.registry.Connections(s.server)
	if err != nil {
		return all // the server is gone
	}
	for _, c := range open {
		row := connectionState{ID: c.ID, User: c.User, State: isIdle, Opened: c.OpenedAt, Used: c.UsedAt, Loans: c.Uses}
		if c.InUse {
			row.State = onLoan
		}
		all = append(all, row)
	}
	return all
}
