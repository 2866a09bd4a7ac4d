package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/adbcpool"
)

// conflict has another session change the row that a transaction has read, on a server of which REPEATABLE READ
// is the default.
func conflict(ctx context.Context, _ *database, pool *flightpool.FlightSQLPool) (string, error) {
	if err := table(ctx, pool, "counter", 0); err != nil {
		return "", err
	}
	runs := 0
	err := pool.InTx(ctx, flightpool.TxOptions{}, func(txCtx context.Context, tx *flightpool.Tx) error {
		runs++
		n, err := flightpool.CollectOneRow[int64](tx.Query(txCtx, "SELECT n FROM counter"))
		if err != nil {
			return err
		}
		if runs == 1 {
			if _, err := pool.Update(ctx, "UPDATE counter SET n = n + 10"); err != nil {
				return err
			}
		}
		_, err = tx.Update(txCtx, "UPDATE counter SET n = $1", n+1)
		return err
	})
	if err == nil && runs != 2 {
		err = fmt.Errorf("it was run %d times", runs)
	}
	if err != nil {
		return "", err
	}
	return "", holds(ctx, pool, "counter", 11)
}

// ownTransaction has statements with a time with a zone fail, in the server and in the driver, which runs them in a transaction of its own.
func ownTransaction(ctx context.Context, d *database, pool *flightpool.FlightSQLPool) (_ string, err error) {
	if _, err := pool.Update(ctx, "CREATE TABLE timed (n BIGINT PRIMARY KEY, at TIMESTAMPTZ)"); err != nil {
		return "", err
	}
	other, err := adbcpool.New(ctx, d.db, flightpool.Config{MaxSize: 1})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, other.Close(ctx)) }()
	for i, at := range []time.Time{{}, time.UnixMicro(math.MinInt64)} { // the second is out of the driver's range
		n := int64(2 * i)
		_, first := pool.Update(ctx, "INSERT INTO timed VALUES ($1)", n)
		if _, refused := pool.Update(ctx, "INSERT INTO timed VALUES ($1, $2)", n, at); refused == nil {
			return "", errTaken
		}
		_, second := pool.Update(ctx, "UPDATE timed SET n = n + 1 WHERE n = $1", n)
		if err := errors.Join(first, second); err != nil {
			return "", err
		}
	}
	return "", holds(ctx, other, "timed", 1, 3)
}

// abortedTransactions has a transaction aborted by what the driver calls not implemented, and the server refuse what the driver asks it of a text in
// another. The server answers the COMMIT of an aborted one with ROLLBACK, which the driver takes for success.
func abortedTransactions(ctx context.Context, _ *database, pool *flightpool.FlightSQLPool) (string, error) {
	if err := table(ctx, pool, "aborted"); err != nil {
		return "", err
	}
	tx, err := pool.BeginTx(ctx, flightpool.TxOptions{})
	if err != nil {
		return "", err
	}
	_, stored := tx.Update(ctx, "INSERT INTO aborted VALUES (1)")
	_, refused := tx.Update(ctx, "CREATE TABLE parted (a INT, b INT UNIQUE) PARTITION BY LIST (a)")
	committed := tx.Commit(ctx)
	if stored != nil || refused == nil || !errors.Is(committed, flightpool.ErrTxAborted) {
		return "", fmt.Errorf("the COMMIT is answered by %w behind %w and %w", committed, stored, refused)
	}
	err = pool.InTx(ctx, flightpool.TxOptions{}, func(ctx context.Context, tx *flightpool.Tx) error { // of which the server cannot tell the parameter, before it has begun one
		_, err := tx.Update(ctx, "INSERT INTO aborted SELECT length(jsonb_build_object('k', $1)::TEXT)", "v")
		return err
	})
	if err != nil {
		return "", err
	}
	if tx, err = pool.BeginTx(ctx, flightpool.TxOptions{}); err != nil {
		return "", err
	}
	_, stored = tx.Update(ctx, "INSERT INTO aborted VALUES (2)")
	_, refused = tx.PrepareQuery(ctx, "INSERT INTO missing VALUES ($1)")
	committed = tx.Commit(ctx)
	if stored != nil || refused == nil || !errors.Is(committed, flightpool.ErrTxAborted) {
		return "", fmt.Errorf("the COMMIT is answered by %w behind %w and %w, of a Prepare", committed, stored, refused)
	}
	return "", holds(ctx, pool, "aborted", 10)
}

// behindReads rolls back, and fails a replacement, on connections that have read before: the driver sends the BEGIN with the first statement,
// and none while the answer to the last has not been taken from the connection.
func behindReads(ctx context.Context, d *database, _ *flightpool.FlightSQLPool) (_ string, err error) {
	pool, err := adbcpool.New(ctx, d.db, flightpool.Config{MaxSize: 1})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, pool.Close(ctx)) }()
	if err := table(ctx, pool, "after_read", 1); err != nil {
		return "", err
	}
	read := func() error { // one to its end, and one that is left
		_, whole := flightpool.CollectRows[int64](pool.Query(ctx, "SELECT n FROM after_read"))
		rows, err := pool.Query(ctx, "SELECT n FROM generate_series(1, 10000000) AS n")
		if err != nil {
			return err
		}
		rows.Next()
		rows.Release()
		return whole
	}
	for name, change := range map[string]func(context.Context, *flightpool.Tx) error{
		"an update": func(ctx context.Context, tx *flightpool.Tx) error {
			_, err := tx.Update(ctx, "INSERT INTO after_read VALUES (2)")
			return err
		},
		"a query before": func(ctx context.Context, tx *flightpool.Tx) error {
			_, read := flightpool.CollectRows[int64](tx.Query(ctx, "SELECT n FROM after_read"))
			_, err := tx.Update(ctx, "INSERT INTO after_read VALUES (3)")
			return errors.Join(read, err)
		},
	} {
		if err := read(); err != nil {
			return "", err
		}
		var changed error
		boom := errors.New("rolled back")
		if err := pool.InTx(ctx, flightpool.TxOptions{}, func(ctx context.Context, tx *flightpool.Tx) error {
			changed = change(ctx, tx)
			return boom
		}); !errors.Is(err, boom) || changed != nil {
			return "", fmt.Errorf("%s: %w", name, errors.Join(err, changed))
		}
		if err := holds(ctx, pool, "after_read", 1); err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
	}
	return "", nil
}
