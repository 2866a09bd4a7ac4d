//go:build duckdb_arrow

package conformance

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// gormAuthor has its keys from the program: DuckDB has no serial columns.
type gormAuthor struct {
	ID        int64 `gorm:"primaryKey;autoIncrement:false"`
	Name      string
	Bio       sql.NullString
	Rate      *float64
	CreatedAt time.Time
	Books     []gormBook `gorm:"foreignKey:AuthorID"`
}

type gormBook struct {
	ID       int64 `gorm:"primaryKey;autoIncrement:false"`
	AuthorID int64
	Title    string
}

// TestGormWorks uses gorm's dialect of PostgreSQL. Its migrator asks for types that
// DuckDB does not have; tables are made as text.
func TestGormWorks(t *testing.T) {
	pool := openSQL(t)
	db, err := gorm.Open(postgres.New(postgres.Config{Conn: pool}), &gorm.Config{
		DisableNestedTransaction: true, // no savepoints
		PrepareStmt:              true,
		Logger:                   logger.Discard,
	})
	require.NoError(t, err)
	db = db.WithContext(t.Context())
	for _, text := range []string{
		"CREATE TABLE gorm_authors (id BIGINT PRIMARY KEY, name TEXT, bio TEXT, rate DOUBLE, created_at TIMESTAMPTZ)",
		"CREATE TABLE gorm_books (id BIGINT PRIMARY KEY, author_id BIGINT, title TEXT)",
	} {
		require.NoError(t, db.Exec(text).Error)
	}
	rate := 0.5
	ada := gormAuthor{ID: 1, Name: "Ada", Rate: &rate, Books: []gormBook{{ID: 1, Title: "Notes"}, {ID: 2, Title: "More"}}}
	require.NoError(t, db.Create(&ada).Error)
	require.NoError(t, db.Create(&[]gormAuthor{{ID: 2, Name: "Bob", Bio: sql.NullString{String: "b", Valid: true}}, {ID: 3, Name: "Cy"}}).Error)

	var got gormAuthor
	require.NoError(t, db.Preload("Books").First(&got, "name = ?", "Ada").Error)
	require.Len(t, got.Books, 2)
	require.Equal(t, rate, *got.Rate)
	require.True(t, got.CreatedAt.Equal(ada.CreatedAt.Truncate(time.Microsecond)), "%v, not %v", got.CreatedAt, ada.CreatedAt)
	require.ErrorIs(t, db.First(&gormAuthor{}, 9).Error, gorm.ErrRecordNotFound)

	done := db.Model(&gormAuthor{}).Where("id > ?", 1).Update("name", "Zoe")
	require.NoError(t, done.Error)
	require.EqualValues(t, 2, done.RowsAffected)
	var rows []map[string]any
	require.NoError(t, db.Model(&gormAuthor{}).Order("id").Find(&rows).Error)
	require.Len(t, rows, 3)
	require.Nil(t, rows[0]["bio"])
	require.Equal(t, "b", rows[1]["bio"])

	wanted := errors.New("not this time")
	require.ErrorIs(t, db.Transaction(func(tx *gorm.DB) error {
		require.NoError(t, tx.Delete(&gormAuthor{}, 1).Error)
		return wanted
	}), wanted)
	var n int64
	require.NoError(t, db.Model(&gormAuthor{}).Count(&n).Error)
	require.EqualValues(t, 3, n)
	require.Error(t, db.Create(&gormAuthor{ID: 1}).Error, "the key is there already")

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err = db.WithContext(ctx).Exec("SELECT count(*) FROM range(1000000000) a, range(1000000) b WHERE (a.range * b.range) % 7 = 3").Error
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
