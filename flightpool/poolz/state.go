package poolz

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/lease"
)

// state is what the page shows: all sources, and the details of one.
type state struct {
	Now     time.Time     `json:"now"`
	Since   time.Time     `json:"since"` // when the page began to collect
	Texts   bool          `json:"texts"`
	Slower  seconds       `json:"slower_than"`
	Sources []sourceState `json:"sources"`
	Details *details      `json:"details"` // null: there is no source
	Budgets []budgetState `json:"budgets"`
	Slow    []slowCall    `json:"slow"`   // the latest first
	Events  []event       `json:"events"` // likewise
}

type sourceState struct {
	Name      string            `json:"name"`
	Kind      string            `json:"kind"` // pool, or the kind of a server
	Target    string            `json:"target,omitempty"`
	Healthy   bool              `json:"healthy"`
	Unhealthy *time.Time        `json:"unhealthy_since,omitempty"`
	Reason    string            `json:"unhealthy_reason,omitempty"`
	LastOpen  string            `json:"last_open_error,omitempty"`
	Now       map[string]int    `json:"now"`
	Counts    map[string]uint64 `json:"counts"`
	Closed    map[string]uint64 `json:"closed"`
	Trend     points            `json:"trend"` // in use, of the last minute
}

// details are those of one source.
type details struct {
	Source      string               `json:"source"`
	Traced      bool                 `json:"traced"` // the pool or registry has the page's tracer
	Step        int                  `json:"step"`   // seconds between two samples
	Samples     int                  `json:"samples"`
	History     map[string]points    `json:"history"`
	Times       map[string]timeState `json:"times,omitempty"`
	Connections []connectionState    `json:"connections"`
	Open        int                  `json:"open"` // connections, of which those are the first
	Users       []userState          `json:"users,omitempty"`
}

// timeState is a duration's distribution since the pool began.
type timeState struct {
	Count uint64  `json:"count"`
	Mean  seconds `json:"mean"`
	P50   seconds `json:"p50"`
	P99   seconds `json:"p99"`
	Max   seconds `json:"max"`
}

type userState struct {
	User  string            `json:"user"`
	Now   map[string]int    `json:"now"`
	Count map[string]uint64 `json:"counts"`
	P99   seconds           `json:"wait_p99"`
}

type budgetState struct {
	Name     string            `json:"name"`
	Kind     string            `json:"kind"` // leases or rate
	Degraded bool              `json:"degraded"`
	Now      map[string]int    `json:"now"`
	Counts   map[string]uint64 `json:"counts"`
}

const (
	trendLength = 60
	defaultRows = 200
	maxRows     = 10_000
)

func (p *Page) serveState(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	rows, err := strconv.Atoi(cmp.Or(q.Get("rows"), strconv.Itoa(defaultRows)))
	if err != nil || rows < 0 || rows > maxRows {
		http.Error(w, "poolz: rows is a number up to "+strconv.Itoa(maxRows), http.StatusBadRequest)
		return
	}
	text, err := json.Marshal(p.state(q.Get("source"), q.Get("range") == "1h", rows))
	if err != nil {
		http.Error(w, "poolz: the state cannot be told", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text) // the browser has gone
}

// state asks all sources, and for details the one of that name, or else the first.
func (p *Page) state(name string, coarse bool, rows int) state {
	now := time.Now()
	st := state{Now: now, Since: onClock(now, p.began), Texts: p.cfg.Texts, Slower: seconds(p.cfg.SlowerThan.Seconds()), Sources: []sourceState{}, Budgets: p.budgetStates(), Events: []event{}}
	var chosen *source
	var latest *reading
	for _, s := range p.allSources() {
		r, ok := s.read(p.cfg.Texts)
		if !ok {
			continue
		}
		st.Sources = append(st.Sources, p.sourceState(s, r, now))
		if chosen == nil || s.name == name {
			chosen, latest = s, r
		}
	}
	if chosen != nil {
		st.Details = p.details(chosen, latest, now, coarse, rows)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	st.Slow = p.mu.slow.last()
	for i := range st.Slow {
		st.Slow[i].At = onClock(now, st.Slow[i].At)
	}
	for _, e := range p.mu.events.last() {
		told := *e
		told.At, told.Last = onClock(now, e.At), onClock(now, e.Last)
		st.Events = append(st.Events, told)
	}
	slices.SortStableFunc(st.Events, func(a, b event) int { return b.Last.Compare(a.Last) })
	return st
}

func (p *Page) sourceState(s *source, r *reading, now time.Time) sourceState {
	out := sourceState{Name: s.name, Kind: r.kind, Target: r.target, Healthy: r.unhealthy.IsZero(), Reason: r.reason, LastOpen: r.lastOpen, Now: r.now, Counts: r.counts, Closed: r.closed, Trend: points{}}
	if !out.Healthy {
		since := onClock(now, r.unhealthy)
		out.Unhealthy = &since
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.history == nil {
		return out
	}
	latest := s.history.fine.last()
	for i := min(trendLength, len(latest)) - 1; i >= 0; i-- {
		out.Trend = append(out.Trend, latest[i][0])
	}
	return out
}

func (p *Page) details(s *source, r *reading, now time.Time, coarse bool, rows int) *details {
	d := &details{Source: s.name, Step: 1, History: map[string]points{}}
	p.mu.Lock()
	d.Traced = p.mu.traced[s.added]
	if h := s.history; h != nil {
		from := &h.fine
		if coarse {
			from = &h.coarse
		}
		d.Step, d.Samples, d.History = from.every, from.size, from.byColumn()
	}
	p.mu.Unlock()
	if r.times != nil {
		d.Times = map[string]timeState{}
		for name, of := range map[string]*flightpool.Durations{"wait": &r.times.Wait, "hold": &r.times.Hold, "open": &r.times.Open, "first_batch": &r.times.FirstBatch, "call": &r.times.Call} {
			at := func(part float64) seconds { return seconds(of.Quantile(part).Seconds()) }
			d.Times[name] = timeState{of.Count(), seconds(of.Mean().Seconds()), at(.5), at(.99), at(1)}
		}
	}
	d.Connections, d.Open = p.connections(s, now, rows)
	if s.registry != nil {
		d.Users = s.users(rows)
	}
	return d
}

// users are the first users of a server.
func (s *source) users(rows int) (all []userState) {
	found, err := s.registry.UserStats(s.server)
	if err != nil {
		return nil // the server is gone
	}
	for _, u := range found[:min(rows, len(found))] {
		all = append(all, userState{
			User: u.User, Now: map[string]int{"in_use": u.Active, "idle": u.Idle, "opening": u.Opening, "waiting": u.Waiting, "total": u.Total},
			Count: map[string]uint64{"acquired": u.Acquires, "timeouts": u.AcquireTimeouts, "rejected": u.Rejected, "calls": u.Queries, "failures": u.QueryFailures, "open_failures": u.ConnectionErrors},
			P99:   seconds(u.Wait.P99.Seconds()),
		})
	}
	return all
}

func (p *Page) budgetStates() []budgetState {
	p.mu.Lock()
	budgets := maps.Clone(p.mu.budgets)
	p.mu.Unlock()
	all := []budgetState{}
	for _, name := range slices.Sorted(maps.Keys(budgets)) {
		if l := budgets[name].leases; l != nil {
			all = append(all, budgetOf(name, "leases", func() budgetState { return leasesState(l.Stats()) }))
		}
		if l := budgets[name].limiter; l != nil {
			all = append(all, budgetOf(name, "rate", func() budgetState { return rateState(l.Stats()) }))
		}
	}
	return all
}

// budgetOf is a budget, which may be the program's own: one that cannot be asked is told
// without numbers, and does not keep all else from being told.
func budgetOf(name, kind string, ask func() budgetState) budgetState {
	b := budgetState{Degraded: true, Now: map[string]int{}, Counts: map[string]uint64{}}
	_ = callback.Isolate("a budget", func() error { b = ask(); return nil })
	b.Name, b.Kind = name, kind
	return b
}

func leasesState(s lease.Stats) budgetState {
	return budgetState{
		Degraded: s.Degraded,
		Now:      map[string]int{"limit": s.Limit, "used": s.Used, "in_use": s.InUse, "spare": s.Spare, "waiting": s.Waiting, "processes": s.Owners, "share": s.Share, "unbacked": s.Unbacked},
		Counts:   map[string]uint64{"granted": s.Granted, "denied": s.Denied, "fallbacks": s.Fallbacks},
	}
}

func rateState(s lease.LimiterStats) budgetState {
	return budgetState{
		Degraded: s.Degraded, Now: map[string]int{"waiting": s.Waiting},
		Counts: map[string]uint64{"granted": s.Granted, "denied": s.Denied, "fallbacks": s.Fallbacks, "refusals": s.Refusals, "dropped": s.Dropped},
	}
}

func compareNames(a, b string) int { return strings.Compare(a, b) }
