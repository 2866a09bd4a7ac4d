package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/flightpool/flightpool/backend"
)

// A feature is something that a client does with a server.
type feature struct {
	name string

	// want is what a server answers that has the feature; empty: anything.
	want string

	// run tells what came of it, in words that are the same for every client
	// that did the same. table is a name that no other run uses.
	run func(ctx context.Context, p *product, c client, table string) (string, error)
}

// Rows of the table that are looked up by their names.
const (
	rowParams    = "parameters of a query"
	rowCommit    = "a transaction, committed"
	rowIngestion = "ingestion"
)

func features() []feature {
	list := []feature{
		{"values of a query", "", func(ctx context.Context, p *product, c client, _ string) (string, error) {
			got, err := c.query(ctx, p.values, nil)
			return got.text, err
		}},
		{"a large result", "", func(ctx context.Context, p *product, c client, _ string) (string, error) {
			got, err := c.query(ctx, p.large, nil)
			return fmt.Sprintf("%d rows", got.count), err
		}},
		{"a wrong statement fails", "", func(ctx context.Context, p *product, c client, _ string) (string, error) {
			if _, err := c.query(ctx, p.wrong, nil); err == nil {
				return "", errors.New("no error")
			}
			got, err := c.query(ctx, p.values, nil) // the client is as good as before
			return got.text, err
		}},
		{rowParams, "", func(ctx context.Context, p *product, c client, _ string) (string, error) {
			params := numbers(7)
			defer params.Release()
			got, err := c.query(ctx, p.param, params)
			return got.text, err
		}},
		{"a prepared query, run twice", "", func(ctx context.Context, p *product, c client, _ string) (string, error) {
			got, err := c.prepared(ctx, p.values)
			return got.text, err
		}},
		{"changes", stores(2), changes},
		{"parameters of a change", stores(1), paramsOfChange},
		{rowCommit, stores(2), transaction(true)},
		{"a transaction, rolled back", stores(0), transaction(false)},
		{rowIngestion, stores(3), ingestion},
	}
	for _, call := range []catalogueCall{catalogs, schemas, tables, tableTypes, primaryKeys, sqlInfo} {
		list = append(list, feature{string(call), "", func(ctx context.Context, p *product, c client, _ string) (string, error) {
			if call == tables { // clients make tables meanwhile
				_, err := c.catalogue(ctx, call, p.table)
				return "", err
			}
			n, err := c.catalogue(ctx, call, p.table)
			return fmt.Sprintf("%d rows", n), err
		}})
	}
	return list
}

// create makes an empty table.
func create(ctx context.Context, p *product, c client, table string) error {
	return c.update(ctx, fmt.Sprintf(p.creates(), table), nil)
}

// stored counts the rows of a table.
func stored(ctx context.Context, c client, table string) (string, error) {
	got, err := c.query(ctx, "SELECT COUNT(*) FROM "+table, nil)
	return got.text + " rows stored", err
}

// stores is what stored returns for n rows.
func stores(n int) string { return fmt.Sprintf("(%d) rows stored", n) }

func changes(ctx context.Context, p *product, c client, table string) (string, error) {
	if err := create(ctx, p, c, table); err != nil {
		return "", err
	}
	for i := range 2 {
		if err := c.update(ctx, insert(table, i), nil); err != nil {
			return "", err
		}
	}
	return stored(ctx, c, table)
}

func insert(table string, n int) string {
	return "INSERT INTO " + table + " VALUES (" + strconv.Itoa(n) + ")"
}

func paramsOfChange(ctx context.Context, p *product, c client, table string) (string, error) {
	if err := create(ctx, p, c, table); err != nil {
		return "", err
	}
	params := numbers(7)
	defer params.Release()
	if err := c.update(ctx, "INSERT INTO "+table+" VALUES (?)", params); err != nil {
		return "", err
	}
	return stored(ctx, c, table)
}

func transaction(commit bool) func(ctx context.Context, p *product, c client, table string) (string, error) {
	return func(ctx context.Context, p *product, c client, table string) (string, error) {
		if err := create(ctx, p, c, table); err != nil {
			return "", err
		}
		if err := c.transaction(ctx, commit, insert(table, 1), insert(table, 2)); err != nil {
			return "", err
		}
		return stored(ctx, c, table)
	}
}

func ingestion(ctx context.Context, p *product, c client, table string) (string, error) {
	if err := create(ctx, p, c, table); err != nil {
		return "", err
	}
	rows := numbers(1, 2, 3)
	defer rows.Release()
	if err := c.ingest(ctx, table, rows); err != nil {
		return "", err
	}
	return stored(ctx, c, table)
}

// cell is what the table in docs/servers.md says of a feature on a server.
type cell string

const works cell = "✓"

// judge compares what the clients did. The pool has to do what any other
// client does, and where none does, to say clearly why.
func judge(f feature, pool outcome, others []outcome) (cell, error) {
	for _, o := range others {
		switch {
		case o.err == nil && pool.err != nil:
			return "", fmt.Errorf("%s does it (%s), the pool does not: %w", o.client, o.text, pool.err)
		case o.err == nil && o.text != pool.text:
			return "", fmt.Errorf("%s has %q, the pool %q", o.client, o.text, pool.text)
		}
	}
	switch {
	case pool.err == nil && f.want != "" && pool.text != f.want:
		return cell("accepted: " + pool.text), nil
	case pool.err == nil:
		return works, nil
	}
	var e *backend.Error
	if !errors.As(pool.err, &e) {
		return "", fmt.Errorf("the pool's error is no *flightpool.Error: %w", pool.err)
	}
	if !e.Fault.KeepsConn() || pool.took > maxRefusal {
		return "", fmt.Errorf("after %v, fault %v: %w", pool.took, e.Fault, pool.err)
	}
	return cell("– " + e.Fault.String()), nil
}

// maxRefusal is how long a call may take to fail that the server does not have.
const maxRefusal = 10 * time.Second

// outcome is what came of a feature with one client.
type outcome struct {
	client string
	text   string
	took   time.Duration
	err    error
}

// named is a client under its name.
type named struct {
	name string
	client
}

// compare runs every feature on the server with every client, and fills the
// server's column.
func (s *subject) compare(ctx context.Context, report *report) (column, error) {
	cells := column{}
	for i, f := range features() {
		if err := s.fresh(ctx); err != nil {
			return nil, err
		}
		outcomes, err := s.outcomes(ctx, f, i)
		if err != nil {
			return nil, err
		}
		got, err := judge(f, outcomes[0], outcomes[1:])
		note := outcomes[0].text
		if err != nil {
			note = err.Error()
		} else if outcomes[0].err != nil {
			note = outcomes[0].err.Error()
		}
		report.add(f.name, err == nil, note)
		cells[f.name] = got
	}
	return cells, ctx.Err()
}

// outcomes is what comes of the i-th feature with every client, the pool first.
func (s *subject) outcomes(ctx context.Context, f feature, i int) ([]outcome, error) {
	bare, err := newBareClient(ctx, s.p, s.server.addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = bare.close(ctx) }() // only an observer
	driver, err := newADBCClient(ctx, s.p, s.server.addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = driver.close(ctx) }()
	var outcomes []outcome
	for j, c := range []named{{"the pool", poolClient{s.pool}}, {"arrow-go", bare}, {"ADBC", driver}} {
		limit, cancel := context.WithTimeout(ctx, time.Minute)
		began := time.Now()
		text, err := f.run(limit, s.p, c, fmt.Sprintf("interop_%d_%d", i, j))
		cancel()
		s.used = true
		outcomes = append(outcomes, outcome{c.name, text, time.Since(began), err})
	}
	return outcomes, nil
}
