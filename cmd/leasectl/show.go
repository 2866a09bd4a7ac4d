package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/flightpool/flightpool/lease/fleet"
)

// A view is what show prints, and its JSON.
type view struct {
	Source  string       `json:"source"`
	Time    time.Time    `json:"time"`
	Budgets []budgetView `json:"budgets"`

	refused error // of budgets whose records were written by something else
}

type budgetView struct {
	Budget           string       `json:"budget"`
	Limit            int          `json:"limit"`
	Used             int          `json:"used"`
	Share            *int         `json:"share"` // the most that one process may have; null while nobody wants more than it has
	Shards           int          `json:"shards"`
	LeaseSeconds     float64      `json:"lease_seconds"`
	GraceSeconds     float64      `json:"grace_seconds"`
	Round            int64        `json:"round"`
	PermitsPerSecond *float64     `json:"permits_per_second"` // null when not counted, or without a rate limit
	Members          []memberView `json:"members"`

	granted float64
}

type memberView struct {
	ID           string     `json:"id"`
	Leases       int        `json:"leases"`
	Want         int        `json:"want"` // 0: no more than it has
	RoundsBehind int64      `json:"rounds_behind"`
	Host         string     `json:"host"`
	PID          int        `json:"pid"`
	Service      string     `json:"service"`
	Started      *time.Time `json:"started"` // by its own clock
	AgeSeconds   *float64   `json:"age_seconds"`
}

// show prints the budgets once.
func (a *app) show(ctx context.Context, src *source, sample time.Duration) error {
	v, err := a.inspectAll(ctx, src, nil)
	if err != nil {
		return err
	}
	if sample > 0 && v.hasPermits() {
		if err := pause(ctx, sample); err != nil {
			return err
		}
		if v, err = a.inspectAll(ctx, src, v); err != nil {
			return err
		}
	}
	return errors.Join(a.print(v), v.refused)
}

// watch prints the budgets again and again until ctx ends. What may pass does
// not end it.
func (a *app) watch(ctx context.Context, src *source, every time.Duration) error {
	var last *view
	for {
		v, err := a.inspectAll(ctx, src, last)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && (last == nil || !mayPass(err)):
			return err
		case err != nil:
			a.report(err)
		default:
			last = v
			if err := a.print(v); err != nil {
				return err
			}
			if v.refused != nil {
				a.report(v.refused)
			}
			if !a.json {
				fmt.Fprintln(a.out)
			}
		}
		if pause(ctx, every) != nil {
			return nil // interrupted, as is the way to end it
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// inspectAll reads the budgets. Permits are counted since before, if there is one.
func (a *app) inspectAll(ctx context.Context, src *source, before *view) (*view, error) {
	ctx, cancel := a.withTimeout(ctx)
	defer cancel()
	names := []string{a.budget}
	if a.budget == "" {
		var err error
		if names, err = src.Budgets(ctx); err != nil {
			return nil, fmt.Errorf("the budgets of %s cannot be listed: %w", src.name, err)
		}
	}
	v := &view{Source: src.name, Budgets: []budgetView{}}
	for _, name := range names {
		f, err := fleet.Inspect(ctx, src, name)
		if errors.Is(err, fleet.ErrNoBudget) && a.budget == "" {
			continue // removed a moment ago
		}
		if errors.Is(err, fleet.ErrRecord) && a.budget == "" {
			v.refused = errors.Join(v.refused, fmt.Errorf("%s: %w", src.name, err)) // the others are shown
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", src.name, err)
		}
		v.Time = time.Now()
		v.Budgets = append(v.Budgets, viewOf(&f, v.Time))
	}
	v.Time = time.Now()
	v.setRates(before)
	return v, nil
}

func viewOf(f *fleet.Fleet, now time.Time) budgetView {
	b := budgetView{
		Budget: f.Budget, Limit: f.Limit, Used: f.Used, Shards: f.Shards, Round: f.Round,
		LeaseSeconds: f.Lease.Seconds(), GraceSeconds: f.Grace.Seconds(),
		Members: make([]memberView, 0, len(f.Members)), granted: f.Granted,
	}
	for _, m := range f.Members {
		w := memberView{
			ID: m.ID, Leases: m.Leases, Want: m.Want, RoundsBehind: max(0, f.Round-m.Round),
			Host: m.Host, PID: m.PID, Service: m.Service,
		}
		if !m.Started.IsZero() {
			started, age := m.Started, max(0, now.Sub(m.Started)).Seconds()
			w.Started, w.AgeSeconds = &started, &age
		}
		if m.Want > m.Leases && f.Share > 0 { // else the share is of a shortage that is over
			b.Share = &f.Share
		}
		b.Members = append(b.Members, w)
	}
	return b
}

// hasPermits says whether permits were ever granted.
func (v *view) hasPermits() bool {
	for _, b := range v.Budgets {
		if b.granted > 0 {
			return true
		}
	}
	return false
}

// setRates finds the rates of permits since before.
func (v *view) setRates(before *view) {
	if before == nil {
		return
	}
	granted := map[string]float64{}
	for _, b := range before.Budgets {
		granted[b.Budget] = b.granted
	}
	seconds := v.Time.Sub(before.Time).Seconds()
	for i := range v.Budgets {
		b := &v.Budgets[i]
		if was, ok := granted[b.Budget]; ok && b.granted > 0 && seconds > 0 {
			rate := max(0, b.granted-was) / seconds
			b.PermitsPerSecond = &rate
		}
	}
}

func (a *app) print(v *view) error {
	if a.json {
		return a.printJSON(v)
	}
	_, err := a.out.Write(v.text())
	return err
}

// printJSON prints one line of JSON.
func (a *app) printJSON(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = a.out.Write(append(text, '\n'))
	return err
}
