package prover

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
)

// shape reads rows in one of the shapes that a program may want them in: a single one, all of
// them, or one after the other until it has enough or panics.
func (w *world) shape(s step, a *actor, q statements) {
	rows, size, how := s.num(1), s.num(2), s.arg(3)
	sql := fmt.Sprintf("SELECT * FROM generate(%d, %d) -- %s", rows, size, s.arg(0))
	err := w.call(s, func(ctx context.Context) error {
		switch how {
		case "row", "one":
			return w.single(ctx, s, q, sql)
		case "collect":
			all, err := flightpool.CollectRows[int64](q.Query(ctx, sql))
			if err == nil && int64(len(all)) != rows {
				w.breaks("short result", "%q: %d rows of %d and no error", s, len(all), rows)
			}
			return err
		}
		next := int64(0)
		for n, err := range flightpool.Rows[int64](q.Query(ctx, sql)) {
			switch {
			case err != nil:
				return err
			case n != next:
				w.breaks("wrong rows", "%q: row %d is %v", s, next, n)
			case how == "panic":
				panic(programPanic)
			case how == "return":
				return nil
			}
			if next++; how == "break" && next == 2 {
				return nil
			}
		}
		if next != rows {
			w.breaks("short result", "%q: %d rows of %d and no error", s, next, rows)
		}
		return nil
	})
	if a != nil && rows > nearEnd {
		a.shaken = true // an early end may cost the session, if it says so
	}
	w.judge(s, a, err)
}

// nearEnd is how many rows are so few that letting them go costs nothing.
const nearEnd = 100

// single asks for one row of many, or none.
func (w *world) single(ctx context.Context, s step, q statements, sql string) (err error) {
	n := int64(-1)
	if s.arg(3) == "row" {
		err = q.QueryRow(ctx, sql).Scan(&n)
	} else {
		n, err = flightpool.CollectOneRow[int64](q.Query(ctx, sql))
	}
	switch {
	case errors.Is(own{err}, flightpool.ErrNoRows) && s.num(1) == 0:
		return nil
	case errors.Is(own{err}, flightpool.ErrNoRows):
		w.breaks("short result", "%q: %v", s, err)
	case err == nil && (n != 0 || s.num(1) == 0):
		w.breaks("wrong rows", "%q: %d", s, n)
	}
	return err
}

// twin makes two calls at once on one handle, of which either may be told that it is in use.
func (w *world) twin(s step, a *actor) {
	first, results := s.num(0), [2]error{}
	_ = w.call(s, func(context.Context) error {
		var both sync.WaitGroup
		for i := range results {
			both.Go(func() {
				results[i] = w.timed(s, func(ctx context.Context) error {
					_, err := w.as(s, a.handle).Update(ctx, fmt.Sprintf("INSERT INTO %s VALUES (%d)", w.table, first+int64(i)))
					return err
				})
			})
		}
		both.Wait()
		return nil
	})
	for i, err := range results {
		w.record(s, a, first+int64(i), 1, err)
	}
	for i, err := range results {
		if !errors.Is(err, backend.ErrBusy) {
			w.judge(s, a, err)
		} else if !unsent(err) {
			w.breaks("no word of how far it came", "%q: call %d: %v", s, i, err)
		}
	}
}
