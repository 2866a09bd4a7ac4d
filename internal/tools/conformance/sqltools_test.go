//go:build duckdb_arrow

package conformance

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/flightpool/flightpool/flightpool/sqldriver"
)

// openSQL opens a DB by the driver's name, on a DuckDB of its own.
func openSQL(t *testing.T) *sql.DB {
	addr, server := startDuckDB(t)
	db, err := sql.Open(sqldriver.Name, "grpc://"+addr+"?max_size=2")
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, db.Close())
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		require.NoError(t, server.Gone(ctx), "the DB's Close closes its pool")
	})
	return db
}

type author struct {
	bun.BaseModel `bun:"table:authors" db:"-"`

	ID   int64           `bun:"id,pk" db:"id"`
	Name string          `bun:"name" db:"name"`
	Bio  sql.NullString  `bun:"bio" db:"bio"`
	Born time.Time       `bun:"born" db:"born"`
	Rate sql.NullFloat64 `bun:"rate" db:"rate"`
}

const createAuthors = "CREATE TABLE authors (id BIGINT PRIMARY KEY, name VARCHAR NOT NULL, bio VARCHAR, born TIMESTAMP, rate DOUBLE)"

var someAuthors = []author{
	{ID: 1, Name: "Ada", Bio: sql.NullString{String: "it's “quoted”", Valid: true}, Born: time.Date(1815, 12, 10, 1, 2, 3, 456_000, time.UTC)},
	{ID: 2, Name: "Bob", Born: time.Date(2001, 2, 3, 0, 0, 0, 0, time.UTC), Rate: sql.NullFloat64{Float64: 0.1, Valid: true}},
	{ID: 3, Name: "", Born: time.Date(1999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)},
}

func TestSQLXWorks(t *testing.T) {
	sqlx.BindDriver(sqldriver.Name, sqlx.QUESTION)
	db := sqlx.NewDb(openSQL(t), sqldriver.Name)
	_, err := db.Exec(createAuthors)
	require.NoError(t, err)
	const insert = "INSERT INTO authors (id, name, bio, born, rate) VALUES (:id, :name, :bio, :born, :rate)"
	_, err = db.NamedExec(insert, someAuthors)
	require.NoError(t, err)
	var all []author
	require.NoError(t, db.Select(&all, "SELECT * FROM authors ORDER BY id"))
	require.Equal(t, someAuthors, all)
	var one author
	require.NoError(t, db.Get(&one, "SELECT * FROM authors WHERE name = ?", "Bob"))
	require.Equal(t, someAuthors[1], one)
	require.ErrorIs(t, db.Get(&one, "SELECT * FROM authors WHERE name = ?", "nobody"), sql.ErrNoRows)
	query, args, err := sqlx.In("SELECT count(*) FROM authors WHERE id IN (?)", []int{1, 3})
	require.NoError(t, err)
	var n int
	require.NoError(t, db.Get(&n, db.Rebind(query), args...))
	require.Equal(t, 2, n)

	tx, err := db.Beginx()
	require.NoError(t, err)
	_, err = tx.NamedExec(insert, author{ID: 4, Name: "Dan"})
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	prepared, err := db.PrepareNamed("SELECT name FROM authors WHERE id = :id")
	require.NoError(t, err)
	require.ErrorIs(t, prepared.Get(&one.Name, map[string]any{"id": 4}), sql.ErrNoRows)
	require.NoError(t, prepared.Get(&one.Name, map[string]any{"id": 1}))
	require.Equal(t, "Ada", one.Name)
	require.NoError(t, prepared.Close())
}

// DBTX is what sqlc generates, for a *sql.DB and a *sql.Tx.
type DBTX interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
	PrepareContext(context.Context, string) (*sql.Stmt, error)
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	QueryRowContext(context.Context, string, ...any) *sql.Row
}

func createAuthor(ctx context.Context, db DBTX, a author) (stored author, err error) {
	const createAuthor = `-- name: CreateAuthor :one
INSERT INTO authors (
  id, name, bio, born, rate
) VALUES (
  $1, $2, $3, $4, $5
)
RETURNING id, name, bio, born, rate
`
	row := db.QueryRowContext(ctx, createAuthor, a.ID, a.Name, a.Bio, a.Born, a.Rate)
	err = row.Scan(&stored.ID, &stored.Name, &stored.Bio, &stored.Born, &stored.Rate)
	return stored, err
}

func listAuthors(ctx context.Context, db DBTX) ([]author, error) {
	const listAuthors = `-- name: ListAuthors :many
SELECT id, name, bio, born, rate FROM authors
ORDER BY id
`
	rows, err := db.QueryContext(ctx, listAuthors)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var items []author
	for rows.Next() {
		var i author
		if err := rows.Scan(&i.ID, &i.Name, &i.Bio, &i.Born, &i.Rate); err != nil {
			return nil, err
		}
		items = append(items, i)
	}
	if err := rows.Close(); err != nil {
		return nil, err
	}
	return items, rows.Err()
}

func TestTheCodeOfSqlcWorks(t *testing.T) {
	db := openSQL(t)
	_, err := db.ExecContext(t.Context(), createAuthors)
	require.NoError(t, err)
	for _, a := range someAuthors {
		stored, err := createAuthor(t.Context(), db, a)
		require.NoError(t, err)
		require.Equal(t, a, stored)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = createAuthor(t.Context(), tx, author{ID: 4, Name: "Dan"})
	require.NoError(t, err)
	within, err := listAuthors(t.Context(), tx)
	require.NoError(t, err)
	require.Len(t, within, 4)
	require.NoError(t, tx.Rollback())
	all, err := listAuthors(t.Context(), db)
	require.NoError(t, err)
	require.Equal(t, someAuthors, all)
	stmt, err := DBTX(db).PrepareContext(t.Context(), "-- name: DeleteAuthor :execrows\nDELETE FROM authors WHERE id = $1")
	require.NoError(t, err)
	for _, id := range []int64{1, 9} {
		done, err := stmt.ExecContext(t.Context(), id)
		require.NoError(t, err)
		n, err := done.RowsAffected()
		require.NoError(t, err)
		require.Equal(t, id == 1, n == 1)
	}
	require.NoError(t, stmt.Close())
}

func TestBunWorks(t *testing.T) {
	db := bun.NewDB(openSQL(t), pgdialect.New()) // DuckDB reads PostgreSQL's names, texts and placeholders
	ctx := t.Context()
	_, err := db.NewCreateTable().Model((*author)(nil)).Exec(ctx)
	require.NoError(t, err)
	_, err = db.NewInsert().Model(&someAuthors).Exec(ctx)
	require.NoError(t, err)
	var all []author
	require.NoError(t, db.NewSelect().Model(&all).Order("id").Scan(ctx))
	for i := range all {
		all[i].Born = all[i].Born.UTC()
	}
	require.Equal(t, someAuthors, all)
	wanted := errors.New("not this time")
	err = db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		done, err := tx.NewUpdate().Model((*author)(nil)).Set("name = ?", "Zoe").Where("id = ?", 1).Exec(ctx)
		require.NoError(t, err)
		n, err := done.RowsAffected()
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		return wanted
	})
	require.ErrorIs(t, err, wanted)
	n, err := db.NewSelect().Model((*author)(nil)).Where("name = ?", "Zoe").Count(ctx)
	require.NoError(t, err)
	require.Zero(t, n)
	exists, err := db.NewSelect().Model((*author)(nil)).Where("id = ?", 3).Exists(ctx)
	require.NoError(t, err)
	require.True(t, exists)
}

// TestGooseMigrates uses goose's dialect of Aurora DSQL, whose SQL DuckDB reads too.
func TestGooseMigrates(t *testing.T) {
	db := openSQL(t)
	migrations := fstest.MapFS{
		"00001_authors.sql": {Data: []byte("-- +goose Up\n" + createAuthors + ";\nINSERT INTO authors (id, name) VALUES (1, 'Ada');\n-- +goose Down\nDROP TABLE authors;\n")},
		"00002_books.sql":   {Data: []byte("-- +goose Up\nCREATE TABLE books (id BIGINT);\n-- +goose Down\nDROP TABLE books;\n")},
		"00003_broken.sql":  {Data: []byte("-- +goose Up\nINSERT INTO books VALUES (1);\nINSERT INTO nowhere VALUES (1);\n")},
	}
	p, err := goose.NewProvider(goose.DialectAuroraDSQL, db, migrations)
	require.NoError(t, err)
	done, err := p.UpTo(t.Context(), 2)
	require.NoError(t, err)
	require.Len(t, done, 2)
	version, err := p.GetDBVersion(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, version)
	_, err = p.Up(t.Context())
	require.ErrorContains(t, err, "nowhere")
	var n int
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM books").Scan(&n))
	require.Zero(t, n, "a migration that fails is rolled back")
	_, err = p.Down(t.Context())
	require.NoError(t, err)
	require.Error(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM books").Scan(&n))
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM authors").Scan(&n))
	require.Equal(t, 1, n)
}
