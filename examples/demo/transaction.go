package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/flightpool/flightpool/session"
)

// transaction stores a summary in one transaction and shows that others see it
// at its commit, not before, and that a transaction given up leaves nothing.
func (d *demo) transaction(ctx context.Context) (err error) {
	handle, err := d.pool.AcquireSession(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, handle.Close()) }()
	if _, err := handle.Update(ctx, "CREATE TABLE summary (state VARCHAR, flights BIGINT)"); err != nil {
		return err
	}
	const insert = `INSERT INTO summary SELECT a.state, count(*) FROM flights f JOIN airports a ON a.iata = f.origin GROUP BY a.state`
	var stored, during int64
	err = handle.WithTransaction(ctx, func(ctx context.Context, s *session.SessionHandle) error {
		inserted, err := s.Update(ctx, insert)
		if err != nil {
			return err
		}
		stored = inserted.RowsAffected
		during, err = d.count(ctx, "FROM summary")
		return err
	})
	if err != nil {
		return err
	}
	after, err := d.count(ctx, "FROM summary")
	if err != nil {
		return err
	}

	errGivenUp := errors.New("given up")
	err = handle.WithTransaction(ctx, func(ctx context.Context, s *session.SessionHandle) error {
		_, err := s.Update(ctx, "DELETE FROM summary")
		return errors.Join(err, errGivenUp)
	})
	if !errors.Is(err, errGivenUp) {
		return fmt.Errorf("the transaction should be given up: %w", err)
	}
	kept, err := d.count(ctx, "FROM summary")
	if err != nil {
		return err
	}
	fmt.Fprintf(d.out, "transaction: %d rows stored; others saw %d before the commit, %d after, %d after a rolled-back DELETE\n", stored, during, after, kept)
	if stored == 0 || during != 0 || after != stored || kept != stored {
		return errors.New("the transaction was not all or nothing")
	}
	return nil
}
