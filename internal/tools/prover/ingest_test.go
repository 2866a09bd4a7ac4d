package prover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
)

// ingest loads n rows from first on.
func ingest(ctx context.Context, q statements, table string, first, n int64, opts flightpool.IngestOptions) error {
	rows := batch(first, n)
	defer rows.Release()
	reader, _ := array.NewRecordReader(rows.Schema(), []arrow.RecordBatch{rows})
	defer reader.Release()
	_, err := q.Ingest(ctx, table, reader, opts)
	return err
}

// created is the table that an ingest of rows from first on creates.
func created(first int64) string { return fmt.Sprintf("created_%d", first) }

// altered is the table to which a step adds a column.
func (w *world) altered(key int64) string { return fmt.Sprintf("%s.altered_%d", w.home, key) }

// eachOf is the table of an "each", with a row for each of its own, negated.
func (w *world) eachOf(key int64) string { return fmt.Sprintf("%s.each_%d", w.home, key) }

// fill loads a temporary table.
func (w *world) fill(s step, a *actor) {
	a.note("temp")
	err := w.call(s, func(ctx context.Context) error {
		return ingest(ctx, a.handle, "tmp", 1, 2, flightpool.IngestOptions{Temporary: true})
	})
	w.judge(s, a, err)
}

// replacement is a load that takes the place of all rows of its table.
type replacement struct {
	first, n     int64
	token        *token
	step         string
	began, ended time.Time
}

// replace loads a table whose rows it replaces. Two that do so at once clash.
func (w *world) replace(s step, a *actor, q statements) {
	r := &replacement{first: s.num(0), n: s.num(1), step: s.String(), began: time.Now()}
	if a != nil {
		a.note(s.verb) // it drops a table, which may have been one of OnConnect's
	}
	if a != nil && a.tx != nil {
		a.tx.clashed = true
	}
	err := w.call(s, func(ctx context.Context) error {
		return ingest(ctx, q, "replaced", r.first, r.n, flightpool.IngestOptions{Catalog: "memory", Schema: "main", Mode: flightpool.IngestReplace})
	})
	r.ended = time.Now()
	w.record(s, a, r.first, r.n, err)
	r.token = w.tokens[r.first]
	for k := r.first; k < r.first+r.n; k++ {
		delete(w.tokens, k) // they are in a table of their own
	}
	w.replaced = append(w.replaced, r)
	if backend.FaultIn(err) == flightpool.FaultStatement && (a == nil || a.tx == nil) && !errors.Is(err, flightpool.ErrSessionLost) {
		return
	}
	w.judge(s, a, err)
	if a != nil && a.tx != nil && backend.FaultIn(err) == flightpool.FaultUnsupported && !unsent(err) {
		a.tx.failed = true // the table may have been dropped before the rows were refused
	}
}

// elsewhere counts the rows that are in tables of their step's own.
func (w *world) elsewhere(count map[int64]int) {
	for _, s := range w.program.steps {
		var tables []string
		switch s.verb {
		case "alter", "prealter":
			tables = []string{w.altered(s.num(0))}
		case "each":
			tables = []string{w.eachOf(s.num(0))}
		case "create":
			tables = []string{"memory.main." + created(s.num(0))}
			if w.home != "memory.main" {
				tables = append(tables, w.home+"."+created(s.num(0)))
			}
		}
		for _, table := range tables {
			rows, err := w.tryAdmin("SELECT * FROM " + table)
			if err != nil {
				continue // it was not created
			}
			for _, row := range rows {
				if k := row[len(row)-1]; k > 0 {
					count[k]++
				}
			}
		}
	}
}

// replacements holds the table that is replaced against what the loads have told.
func (w *world) replacements() {
	rows, err := w.tryAdmin("SELECT * FROM " + w.home + ".replaced")
	if err != nil && w.home != "memory.main" {
		rows, err = w.tryAdmin("SELECT * FROM memory.main.replaced")
	}
	var there *replacement
	for _, r := range w.replaced {
		if err == nil && len(rows) > 0 && rows[0][0] == r.first {
			there = r
		}
	}
	for _, r := range w.replaced {
		confirmed := r.token != nil && r.token.outcome() == stored
		switch {
		case confirmed && there == nil,
			confirmed && r.token.tx == nil && there.token.tx == nil && there.token.alone == stored && r.began.After(there.ended):
			w.breaks("confirmed and not stored", "%q", r.step)
		}
	}
	switch {
	case there == nil && len(rows) > 0:
		w.breaks("stored from nowhere", "%v", rows)
	case there == nil:
	case there.token.outcome() == never || there.token.outcome() == open:
		w.breaks("denied and stored", "%q", there.step)
	case int64(len(rows)) != there.n:
		w.breaks("stored in part", "%q: %v", there.step, rows)
	}
}

// outcome is what has become of a row.
func (t *token) outcome() outcome {
	if t.tx != nil && t.alone != never {
		return t.tx.ended
	}
	return t.alone
}
