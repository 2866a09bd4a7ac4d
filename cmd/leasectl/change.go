package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flightpool/flightpool/lease/fleet"
)

// limit changes the limit of a budget.
func (a *app) limit(ctx context.Context, src *source, limit int, force bool) error {
	ctx, cancel := a.withTimeout(ctx)
	defer cancel()
	f, err := a.inspectOne(ctx, src)
	if err != nil {
		return err
	}
	switch {
	case limit < f.Shards:
		return &failure{exitRefused, fmt.Errorf("a limit of %d is less than the %d shards of budget %q", limit, f.Shards, f.Budget)}
	case limit < f.Used && !force:
		return &failure{exitRefused, fmt.Errorf(
			"a limit of %d is below the %d leases that are held of budget %q: nothing would be revoked, and nothing granted until the fleet is below it; say --force to set it",
			limit, f.Used, f.Budget)}
	}
	if err := fleet.SetLimit(ctx, src, f.Budget, limit); err != nil {
		return err
	}
	return a.tellDone(struct {
		Budget string `json:"budget"`
		Before int    `json:"limit_before"`
		Limit  int    `json:"limit"`
		Used   int    `json:"used"`
	}{f.Budget, f.Limit, limit, f.Used}, "budget %s: the limit is %d, was %d; %d leases are held; every process follows within %v\n",
		printable(f.Budget), limit, f.Limit, f.Used, (f.Lease / 6).Round(time.Second))
}

// tellDone prints what was changed, as JSON or as text.
func (a *app) tellDone(asJSON any, text string, args ...any) error {
	var err error
	if a.json {
		err = a.printJSON(asJSON)
	} else {
		_, err = fmt.Fprintf(a.out, text, args...)
	}
	if err != nil {
		return fmt.Errorf("the change is made, but %w", err)
	}
	return nil
}

// inspectOne reads the budget of --budget, or the only one of the store.
func (a *app) inspectOne(ctx context.Context, src *source) (fleet.Fleet, error) {
	name := a.budget
	if name == "" {
		names, err := src.Budgets(ctx)
		if err != nil {
			return fleet.Fleet{}, fmt.Errorf("the budgets of %s cannot be listed, name one by --budget: %w", src.name, err)
		}
		switch len(names) {
		case 0:
			return fleet.Fleet{}, &failure{exitMissing, fmt.Errorf("%s has no budgets: no process has joined one yet", src.name)}
		case 1:
			name = names[0]
		default:
			return fleet.Fleet{}, &failure{exitUsage, fmt.Errorf("%s has %d budgets, name one by --budget: %s", src.name, len(names), strings.Join(names, ", "))}
		}
	}
	f, err := fleet.Inspect(ctx, src, name)
	if err != nil {
		return fleet.Fleet{}, fmt.Errorf("%s: %w", src.name, err)
	}
	return f, nil
}

// free takes the leases of a process away, once that is confirmed.
func (a *app) free(ctx context.Context, src *source, id string, yes bool) error {
	f, m, err := a.findMember(ctx, src, id)
	if err != nil {
		return err
	}
	if !yes {
		a.explainFree(&f, &m)
		if err := a.confirm(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := a.withTimeout(ctx)
	defer cancel()
	freed, err := fleet.Free(ctx, src, f.Budget, m.ID)
	if err != nil {
		return fmt.Errorf("%d of %d leases were freed: %w", freed, m.Leases, err)
	}
	return a.tellDone(struct {
		Budget string `json:"budget"`
		ID     string `json:"id"`
		Freed  int    `json:"freed"`
	}{f.Budget, m.ID, freed}, "budget %s: %d leases of process %s were freed\n", printable(f.Budget), freed, printable(m.ID))
}

func (a *app) findMember(ctx context.Context, src *source, id string) (fleet.Fleet, fleet.Member, error) {
	ctx, cancel := a.withTimeout(ctx)
	defer cancel()
	f, err := a.inspectOne(ctx, src)
	if err != nil {
		return fleet.Fleet{}, fleet.Member{}, err
	}
	i := slices.IndexFunc(f.Members, func(m fleet.Member) bool { return m.ID == id })
	if i < 0 {
		named := strconv.Quote(id)
		if strings.Contains(id, "://") {
			named = "of that name" // it may have a password
		}
		return fleet.Fleet{}, fleet.Member{}, &failure{exitMissing, fmt.Errorf(
			"no process %s has leases of budget %q, which has %d processes: see leasectl show; it may have ended already", named, f.Budget, len(f.Members))}
	}
	return f, f.Members[i], nil
}

func (a *app) explainFree(f *fleet.Fleet, m *fleet.Member) {
	fmt.Fprintf(a.err, "process %s (host %s, pid %d, service %s) holds %d of the %d leases of budget %s",
		printable(m.ID), orUnknown(m.Host), m.PID, orUnknown(m.Service), m.Leases, f.Limit, printable(f.Budget))
	if behind := f.Round - m.Round; behind > 0 {
		fmt.Fprintf(a.err, "; it is %d rounds behind\n", behind)
	} else {
		fmt.Fprintln(a.err, "; it checked in to the current round, so it was alive a short while ago")
	}
	fmt.Fprintf(a.err, `If it is gone, others may open so many connections at once, instead of up to %v after its death.
If it lives, it learns of this within %v and claims leases for all its connections again,
on top of the limit if need be; if that overruns the limit, it closes them all.
`, f.Lease+f.Grace, f.Lease/4)
}

// confirm waits for a yes, or for ctx to end.
func (a *app) confirm(ctx context.Context) error {
	fmt.Fprint(a.err, `Free its leases? Only "yes" does it: `)
	type answer struct {
		text string
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		text, err := bufio.NewReader(a.in).ReadString('\n')
		answered <- answer{text, err}
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case got := <-answered:
		switch {
		case strings.EqualFold(strings.TrimSpace(got.text), "yes"):
			return nil
		case errors.Is(got.err, io.EOF):
			fmt.Fprintln(a.err)
			return &failure{exitRefused, errors.New("nobody confirmed, nothing was freed; --yes does without")}
		}
		return &failure{exitRefused, errors.New("not confirmed, nothing was freed")}
	}
}
