package ormtest

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/flightpool/flightpool/reservoir/dsql"
)

type gormAccount struct {
	ID     string `gorm:"type:uuid;primaryKey;default:gen_random_uuid()"` // no sequences
	Owner  string
	Amount int
}

func TestGorm(t *testing.T) {
	w := newWorld(t, "")
	w.exec(t, "drop table if exists gorm_accounts")
	db, err := gorm.Open(postgres.New(postgres.Config{Conn: w.db}), &gorm.Config{
		DisableNestedTransaction:                 true, // no savepoints
		DisableForeignKeyConstraintWhenMigrating: true, // no foreign keys
		PrepareStmt:                              true,
		Logger:                                   logger.Discard,
	})
	require.NoError(t, err)
	db = db.WithContext(w.ctx)
	require.NoError(t, db.AutoMigrate(&gormAccount{}), "each statement is a transaction of its own")
	require.NoError(t, db.AutoMigrate(&gormAccount{}), "nothing is left to do")
	require.NoError(t, db.Create([]*gormAccount{{Owner: "ann", Amount: 100}, {Owner: "bob"}}).Error)
	var ann gormAccount
	require.NoError(t, db.First(&ann, "owner = ?", "ann").Error)
	require.Equal(t, 100, ann.Amount)
	require.Len(t, ann.ID, 36)

	w.gate.FailCommits(1, "OC000")
	runs := 0
	move := func(tx *gorm.DB) error {
		runs++
		if err := tx.Model(&ann).Update("amount", gorm.Expr("amount - 30")).Error; err != nil {
			return err
		}
		return tx.Transaction(func(nested *gorm.DB) error { // the same transaction
			return nested.Model(&gormAccount{}).Where("owner = ?", "bob").Update("amount", gorm.Expr("amount + 30")).Error
		})
	}
	require.NoError(t, dsql.RetryOCC(w.ctx, func(ctx context.Context) error { return db.WithContext(ctx).Transaction(move) }))
	require.Equal(t, 2, runs)
	var all []gormAccount
	require.NoError(t, db.Order("owner").Find(&all).Error)
	require.Equal(t, []int{70, 30}, []int{all[0].Amount, all[1].Amount})

	broken := errors.New("broken")
	require.ErrorIs(t, db.Transaction(func(tx *gorm.DB) error { return errors.Join(move(tx), broken) }), broken)
	require.Equal(t, 100, w.sum(t, "gorm_accounts"), "rolled back")
	require.NoError(t, db.Delete(&gormAccount{}, "owner = ?", "bob").Error)
	require.Equal(t, 70, w.sum(t, "gorm_accounts"))
	w.timesOut(t, func(ctx context.Context) error { return db.WithContext(ctx).Exec("select pg_sleep(20)").Error })
}
