package accounts

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// Account is a row of dsql_example.
type Account struct {
	Owner  string
	Amount int32
}

// CreateAccounts is a query of the kind :copyfrom.
func (q *Queries) CreateAccounts(ctx context.Context, all []Account) (int64, error) {
	return q.db.CopyFrom(ctx, pgx.Identifier{"dsql_example"}, []string{"owner", "amount"},
		pgx.CopyFromSlice(len(all), func(i int) ([]any, error) { return []any{all[i].Owner, all[i].Amount}, nil }))
}

const deleteAccounts = `DELETE FROM dsql_example`

// DeleteAccounts is of the kind :execrows.
func (q *Queries) DeleteAccounts(ctx context.Context) (int64, error) {
	result, err := q.db.Exec(ctx, deleteAccounts)
	return result.RowsAffected(), err
}

const getAccount = `SELECT owner, amount FROM dsql_example WHERE owner = $1`

// GetAccount is of the kind :one.
func (q *Queries) GetAccount(ctx context.Context, owner string) (Account, error) {
	var i Account
	err := q.db.QueryRow(ctx, getAccount, owner).Scan(&i.Owner, &i.Amount)
	return i, err
}

const listAccounts = `SELECT owner, amount FROM dsql_example ORDER BY owner`

// ListAccounts is of the kind :many.
func (q *Queries) ListAccounts(ctx context.Context) ([]Account, error) {
	rows, err := q.db.Query(ctx, listAccounts)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var items []Account
	for rows.Next() {
		var i Account
		if err := rows.Scan(&i.Owner, &i.Amount); err != nil {
			return nil, err
		}
		items = append(items, i)
	}
	return items, rows.Err()
}

const addToAccount = `UPDATE dsql_example SET amount = amount + $1 WHERE owner = $2`

// Add is of the kind :batchexec.
func (q *Queries) Add(ctx context.Context, changes []Account) error {
	batch := &pgx.Batch{}
	for _, c := range changes {
		batch.Queue(addToAccount, c.Amount, c.Owner)
	}
	results := q.db.SendBatch(ctx, batch)
	var faults []error
	for range changes {
		_, err := results.Exec()
		faults = append(faults, err)
	}
	return errors.Join(append(faults, results.Close())...)
}
