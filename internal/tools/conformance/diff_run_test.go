//go:build duckdb_arrow

package conformance

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/duckdb"
)

// side is one client with a server of its own, and an observer: arrow-go's
// client, which looks at the database afterwards and empties it.
type side struct {
	name     string
	addr     string
	open     func(ctx context.Context) (client, error)
	observer *bare
}

// ofPool is the side whose pool has no options.
const ofPool = "pool"

// peers are the four sides that run each program, arrow-go's client first.
type peers []side

func startPeers(t *testing.T) peers {
	serve := func() (string, *bare) {
		srv, err := duckdb.Start(t.Context(), duckdb.Config{}, testserver.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, srv.Close()) })
		observer, err := openBare(srv.Addr())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, observer.c.Close()) })
		return srv.Addr(), observer
	}
	addr, observer := serve()
	all := peers{{"bare", addr, func(context.Context) (client, error) { return openBare(addr) }, observer}}

	for i, name := range []string{ofPool, "pool that keeps statements"} {
		addr, observer := serve()
		pool, err := flightpool.New(t.Context(), "grpc://"+addr, flightpool.Config{MaxSize: 2, StatementCache: 4 * i})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, pool.Close(context.WithoutCancel(t.Context()))) })
		all = append(all, side{name, addr, func(ctx context.Context) (client, error) {
			s, err := pool.AcquireSession(ctx)
			return &pooled{pool, s}, err
		}, observer})
	}

	addr3, observer3 := serve()
	db, err := openADBC(addr3)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return append(all, side{"ADBC", addr3, func(ctx context.Context) (client, error) { return openDriver(ctx, db) }, observer3})
}

func openDriver(ctx context.Context, db adbc.Database) (client, error) {
	conn, err := db.Open(ctx)
	return &driver{conn}, err
}

// outcome is what one client got for one step.
type outcome struct {
	err      error
	affected int64
	rows     *rows
	skipped  bool // it is not for this side

	// broken says that a promise of the pool alone was broken.
	broken string
}

// runner makes the steps of a program on one client.
//
// Once a statement in a transaction has failed, the rest of the transaction is
// left out and it is rolled back: DuckDB goes on after some failures, the pool
// after none that the server answered with. The pool is given the rest, and must
// refuse each statement, and the commit, with ErrTxAborted.
type runner struct {
	client
	beside  client // another program's
	named   map[string]prepared
	inTx    bool
	failed  bool // in the transaction
	aborted bool // by an answer of the server, as the pool must know
}

var errNotPrepared = errors.New("the statement is not prepared")

// run makes the steps of the program and ends the transaction that is left
// open.
func (p program) run(ctx context.Context, c client, beside client) ([]outcome, error) {
	r := &runner{client: c, beside: beside, named: map[string]prepared{}}
	outs := make([]outcome, len(p))
	for i, s := range p {
		params, err := s.with.batch()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s, err)
		}
		outs[i] = r.step(ctx, s, params)
	}
	for _, n := range r.named {
		_ = n.close(ctx) // its transaction may have ended
	}
	if r.inTx {
		_ = c.rollback(ctx) // an aborted one may be gone
	}
	return outs, c.close(ctx)
}

func (r *runner) step(ctx context.Context, s step, params arrow.RecordBatch) (o outcome) {
	switch s.verb {
	case "begin":
		if !r.inTx {
			o.err = r.begin(ctx)
			r.inTx, r.failed, r.aborted = o.err == nil, false, false
		}
		return o
	case "commit", "rollback":
		switch {
		case !r.inTx: // not as generated, but in a program made smaller
		case r.aborted && s.verb == "commit":
			o.broken = refused(r.client.(*pooled).Commit(ctx))
		case r.failed:
			_ = r.rollback(ctx) // DuckDB may have done so
		case s.verb == "commit":
			o.err = r.commit(ctx)
		default:
			o.err = r.rollback(ctx)
		}
		r.inTx = false
		return o
	}
	if (s.is(asArgs) || s.verb == "beside") && r.inTx {
		return o
	}
	if r.inTx && r.failed && s.verb != "close" {
		if _, known := r.named[s.name]; r.aborted && (known || !strings.HasPrefix(s.verb, "run-")) {
			o.broken = refused(r.statement(ctx, s, params).err)
		}
		return o
	}
	o = r.statement(ctx, s, params)
	if o.err != nil {
		r.failed = true
		_, pool := r.client.(*pooled)
		var e *backend.Error
		r.aborted = pool && r.inTx && errors.As(o.err, &e) && e.Fault == backend.FaultStatement && !e.Unsent
	}
	return o
}

// refused says what is wrong about the answer to a call in an aborted
// transaction, "" if nothing is.
func refused(err error) string {
	var e *backend.Error
	if errors.Is(err, backend.ErrTxAborted) || errors.As(err, &e) && e.Unsent {
		return "" // or for an argument that is wrong by itself
	}
	return fmt.Sprintf("in an aborted transaction: %v", err)
}

func (r *runner) statement(ctx context.Context, s step, params arrow.RecordBatch) (o outcome) {
	c, named := r.client, r.named
	switch s.verb {
	case "query":
		pool, ours := c.(*pooled)
		switch {
		case s.is(asArgs) && ours:
			o.rows, o.err = pool.queryArgs(ctx, s, params)
		case s.is(asArgs):
			o.skipped = true
		default:
			o.rows, o.err = c.query(ctx, s, params)
		}
	case "update":
		o.affected, o.err = c.update(ctx, s, params)
	case "beside":
		_, o.err = r.beside.update(ctx, s, nil)
	case "ingest":
		o.affected, o.err = load(ctx, c, s, params)
	case "prepare":
		var p prepared
		if p, o.err = c.prepare(ctx, s.sql); o.err == nil {
			named[s.name] = p
		}
	default:
		p, ok := named[s.name]
		switch {
		case !ok:
			o.err = errNotPrepared
		case s.verb == "close":
			o.err = p.close(ctx)
			delete(named, s.name)
		case s.verb == "run-query":
			o.rows, o.err = p.query(ctx, params)
		default:
			o.affected, o.err = p.update(ctx, params)
		}
	}
	if s.verb == "close" {
		o.err = nil // whether its transaction outlived it differs
	}
	if o.err != nil {
		o.rows, o.affected = nil, 0
	}
	return o
}

func load(ctx context.Context, c client, s step, params arrow.RecordBatch) (int64, error) {
	mode, err := ingestModeOf(s)
	if err != nil {
		return 0, err
	}
	if params == nil {
		return 0, fmt.Errorf("no rows: %s", s)
	}
	rows, err := reader(params)
	if err != nil {
		return 0, err
	}
	defer rows.Release()
	return c.ingest(ctx, s, mode, rows)
}

// differences runs the program on every side, compares what each step and the
// database afterwards answered, and empties the databases.
func (ps peers) differences(ctx context.Context, p program) ([]string, error) {
	outs, dumps := make([][]outcome, len(ps)), make([][]string, len(ps))
	for i, side := range ps {
		c, err := side.open(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", side.name, err)
		}
		if outs[i], err = p.run(ctx, c, side.observer); err != nil {
			return nil, fmt.Errorf("%s: %w", side.name, err)
		}
		if dumps[i], err = dump(ctx, side.observer); err != nil {
			return nil, fmt.Errorf("%s: %w", side.name, err)
		}
	}
	var diffs []string
	pool := slices.IndexFunc(ps, func(s side) bool { return s.name == ofPool })
	for i := 1; i < len(ps); i++ {
		for j, s := range p {
			base := 0
			if s.is(asArgs) {
				base = pool
			}
			if s.is(asArgs) && i <= pool || outs[i][j].skipped {
				continue
			}
			if d := compare(s, outs[base][j], outs[i][j]); d != "" {
				diffs = append(diffs, fmt.Sprintf("step %d: %s\n(%s) or (%s) %s", j+1, s, ps[base].name, ps[i].name, d))
				break // what follows may come of it
			}
		}
		if !slices.Equal(dumps[0], dumps[i]) {
			diffs = append(diffs, fmt.Sprintf("the database of %s afterwards:\n%s\nthat of %s:\n%s", ps[0].name, strings.Join(dumps[0], "\n"), ps[i].name, strings.Join(dumps[i], "\n")))
		}
	}
	return diffs, nil
}

// compare says how two outcomes of a step differ, "" if they do not.
func compare(s step, want, got outcome) string {
	switch {
	case got.broken != "":
		return got.broken
	case (want.err == nil) != (got.err == nil):
		return fmt.Sprintf("error: %v or %v", want.err, got.err)
	case want.err != nil && said(got.err) != "" && !strings.Contains(anyFirst.ReplaceAllString(got.err.Error(), ""), anyFirst.ReplaceAllString(said(want.err), "")):
		return fmt.Sprintf("what the server said: %v or %v", want.err, got.err)
	case want.err != nil:
		return ""
	case want.affected != got.affected:
		return fmt.Sprintf("affected: %d or %d", want.affected, got.affected)
	case want.rows == nil:
		return ""
	case want.rows.schema != got.rows.schema:
		return fmt.Sprintf("schema:\n  %s\nor\n  %s", want.rows.schema, got.rows.schema)
	}
	a, b := want.rows.rows, got.rows.rows
	if !s.is(ordered) {
		slices.Sort(a)
		slices.Sort(b)
	}
	if !slices.Equal(a, b) {
		return fmt.Sprintf("rows (%d or %d):\n  %s\nor\n  %s", len(a), len(b), strings.Join(head(a), "\n  "), strings.Join(head(b), "\n  "))
	}
	return ""
}

// anyFirst is what DuckDB says of a key that is there already, a NULL where none may be, or
// a text that is no number: of several the one that it finds first.
var anyFirst = regexp.MustCompile(`(?s)Duplicate key "[^"]*"|NOT NULL constraint failed: \S+|Could not convert string '.*?' to `)

// said is what the server answered, "" when the client itself refused. ADBC's
// errors do not tell.
func said(err error) string {
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) {
		return s.GRPCStatus().Message()
	}
	return ""
}

func head(list []string) []string { return list[:min(len(list), 20)] }

// catalog lists everything that a program can have made. What depends on
// something comes first.
const catalog = `
	SELECT 1 AS rank, 'VIEW' AS kind, view_name AS name, sql FROM duckdb_views() WHERE NOT internal AND NOT temporary
	UNION ALL SELECT 2, 'INDEX', index_name, sql FROM duckdb_indexes()
	UNION ALL SELECT 3, 'TABLE', table_name, sql FROM duckdb_tables() WHERE NOT temporary
	UNION ALL SELECT 4, 'SEQUENCE', sequence_name, last_value::VARCHAR FROM duckdb_sequences() WHERE NOT temporary
	UNION ALL SELECT 5, 'TYPE', type_name, labels::VARCHAR FROM duckdb_types() WHERE NOT internal
	ORDER BY ALL`

// dump returns everything in the database, one line each, and drops it.
func dump(ctx context.Context, b *bare) ([]string, error) {
	list, err := b.query(ctx, step{sql: catalog}, nil)
	if err != nil {
		return nil, fmt.Errorf("the catalog: %w", err)
	}
	lines := list.rows
	var drops strings.Builder
	for _, line := range list.rows {
		cells := strings.SplitN(line, " | ", 4)
		kind, name := strings.Trim(cells[1], `"`), cells[2]
		if kind == "TABLE" {
			r, err := b.query(ctx, step{sql: "SELECT * FROM " + name}, nil)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			slices.Sort(r.rows)
			lines = append(lines, name+": "+r.schema)
			lines = append(lines, r.rows...)
		}
		fmt.Fprintf(&drops, "DROP %s IF EXISTS %s; ", kind, name)
	}
	if drops.Len() == 0 {
		return lines, nil
	}
	_, err = b.c.ExecuteUpdate(ctx, drops.String())
	return lines, err
}

// minimise leaves out steps as long as there are differences.
func (ps peers) minimise(ctx context.Context, p program) program {
	for size := len(p) / 2; size >= 1; {
		smaller := false
		for at := 0; at+size <= len(p); {
			less := slices.Concat(p[:at], p[at+size:])
			if diffs, err := ps.differences(ctx, less); err == nil && len(diffs) > 0 {
				p, smaller = less, true
			} else {
				at += size
			}
		}
		if !smaller || size > 1 {
			size /= 2
		}
	}
	return p
}
