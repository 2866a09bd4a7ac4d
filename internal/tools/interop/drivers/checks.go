package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/flightpool/flightpool/flightpool"
)

// checks are those of every database. The tables of each have names of their own.
func checks() []check {
	return []check{
		{name: "queries, with and without parameters", run: queries},
		{name: "changes with parameters are stored once", run: changes},
		{name: "prepared statements, each run twice", run: prepared},
		{name: "a transaction is committed, another rolled back", run: transactions},
		{name: "a statement that is refused ends neither its transaction's session nor the connection", run: refused},
		{name: "rows are ingested", run: ingested},
		{name: "rows go to the columns of their names, and are stored as what they are or not at all", run: ingestedByName},
		{name: "a reader of rows that fails: nothing is stored, and the caller hears why", run: readerFails},
		{name: "rows that fail leave the table that they were to replace", run: replaceFails},
		{name: "rows for a table that is not there leave no transaction to the next caller", run: appendFails},
		{name: "rows that make one table at once are all stored", run: madeAtOnce},
		{name: "a reader of rows that panics: the caller recovers, and nothing is stored or locked", run: readerPanics, costs: 1},
		{name: "patterns of the catalogue", run: patterns},
		{name: "types of tables", run: types},
		{name: "an empty catalogue", run: emptyCatalogue},
		{name: "what a session leaves is not the next one's", run: leftovers, costs: 1},
	}
}

// table makes a table with these rows.
func table(ctx context.Context, pool *flightpool.FlightSQLPool, name string, rows ...int64) error {
	_, err := pool.Update(ctx, "CREATE TABLE "+name+" (n BIGINT)")
	for _, n := range rows {
		if err == nil {
			_, err = pool.Update(ctx, fmt.Sprintf("INSERT INTO %s VALUES (%d)", name, n))
		}
	}
	return err
}

// holds fails unless a table has these rows.
func holds(ctx context.Context, pool *flightpool.FlightSQLPool, name string, want ...int64) error {
	got, err := flightpool.CollectRows[int64](pool.Query(ctx, "SELECT n FROM "+name+" ORDER BY n"))
	return errors.Join(err, equal(name, got, want))
}

func equal[T comparable](what string, got, want []T) error {
	if !slices.Equal(got, want) {
		return fmt.Errorf("%s: %v, not %v", what, got, want)
	}
	return nil
}

func queries(ctx context.Context, _ *database, pool *flightpool.FlightSQLPool) (string, error) {
	if err := table(ctx, pool, "asked", 1, 2, 3); err != nil {
		return "", err
	}
	all := holds(ctx, pool, "asked", 1, 2, 3)
	got, err := flightpool.CollectRows[int64](pool.Query(ctx, "SELECT n FROM asked WHERE n >= $1 ORDER BY n", int64(2)))
	return "", errors.Join(all, err, equal("with a parameter", got, []int64{2, 3}))
}

func changes(ctx context.Context, _ *database, pool *flightpool.FlightSQLPool) (string, error) {
	if err := table(ctx, pool, "changed"); err != nil {
		return "", err
	}
	const insert = "INSERT INTO changed VALUES ($1)"
	one, err := pool.Update(ctx, insert, int64(1))
	if err != nil {
		return "", err
	}
	batch := numbers(2, 3, 4)
	defer batch.Release()
	more, err := pool.UpdateWithRecordBatch(ctx, insert, batch)
	if err != nil {
		return "", err
	}
	affected := equal("rows affected", []int64{one.RowsAffected, more.RowsAffected}, []int64{1, 3})
	return "", errors.Join(affected, holds(ctx, pool, "changed", 1, 2, 3, 4))
}

func prepared(ctx context.Context, _ *database, pool *flightpool.FlightSQLPool) (_ string, err error) {
	if err := table(ctx, pool, "prepared"); err != nil {
		return "", err
	}
	s, err := pool.AcquireSession(ctx)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	insert, err := s.PrepareQuery(ctx, "INSERT INTO prepared VALUES ($1)")
	if err != nil {
		return "", err
	}
	for n := range int64(2) {
		if _, err := insert.Update(ctx, n); err != nil {
			return "", err
		}
	}
	query, err := s.PrepareQuery(ctx, "SELECT n FROM prepared WHERE n = $1")
	if err != nil {
		return "", err
	}
	for n := range int64(2) {
		got, err := flightpool.CollectRows[int64](query.Query(ctx, n))
		if err := errors.Join(err, equal("rows", got, []int64{n})); err != nil {
			return "", err
		}
	}
	return "", errors.Join(insert.Close(ctx), query.Close(ctx), holds(ctx, pool, "prepared", 0, 1))
}

func transactions(ctx context.Context, _ *database, pool *flightpool.FlightSQLPool) (string, error) {
	if err := table(ctx, pool, "moved"); err != nil {
		return "", err
	}
	for n, end := range []func(*flightpool.Tx) error{
		func(tx *flightpool.Tx) error { return tx.Rollback(ctx) },
		func(tx *flightpool.Tx) error { return tx.Commit(ctx) },
	} {
		tx, err := pool.BeginTx(ctx, flightpool.TxOptions{})
		if err != nil {
			return "", err
		}
		_, err = tx.Update(ctx, "INSERT INTO moved VALUES ($1)", int64(n))
		if err := errors.Join(err, end(tx)); err != nil {
			return "", errors.Join(err, tx.Rollback(ctx))
		}
	}
	return "", holds(ctx, pool, "moved", 1)
}

func refused(ctx context.Context, _ *database, pool *flightpool.FlightSQLPool) (string, error) {
	_, single := pool.Update(ctx, "INSERT INTO missing VALUES (1)")
	tx, err := pool.BeginTx(ctx, flightpool.TxOptions{})
	if err != nil {
		return "", err
	}
	_, inTx := tx.Update(ctx, "INSERT INTO missing VALUES ($1)", int64(1))
	if err := tx.Rollback(ctx); err != nil {
		return "", err
	}
	if single == nil || inTx == nil {
		return "", errTaken
	}
	if err := errors.Join(single, inTx); errors.Is(err, flightpool.ErrSessionLost) {
		return "", err
	}
	return "", nil
}

// leftovers has one session leave something, and looks for it in each that the pool may give next.
func leftovers(ctx context.Context, d *database, pool *flightpool.FlightSQLPool) (string, error) {
	s, err := pool.AcquireSession(ctx)
	if err != nil {
		return "", err
	}
	_, err = s.Update(ctx, d.state)
	own, errOwn := flightpool.CollectOneRow[int64](s.Query(ctx, d.seen))
	if err := errors.Join(err, errOwn, s.Close(), equal("in its own session", []int64{own}, []int64{1})); err != nil {
		return "", err
	}
	for range 3 {
		n, err := flightpool.CollectOneRow[int64](pool.Query(ctx, d.seen))
		if err := errors.Join(err, equal("in another", []int64{n}, []int64{0})); err != nil {
			return "", err
		}
	}
	return "", nil
}
