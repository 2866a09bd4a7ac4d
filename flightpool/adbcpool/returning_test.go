package adbcpool

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/sqldriver"
	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/engine"
	"github.com/flightpool/flightpool/testserver/script"
)

// storesAtItsEnd is an engine whose changes with RETURNING are stored when
// their last row has been read, some time after it, or refused then.
type storesAtItsEnd struct {
	*script.Engine
	refused error
	takes   time.Duration
}

var returned = arrow.NewSchema([]arrow.Field{{Name: "v", Type: arrow.PrimitiveTypes.Int64}}, nil)

func (e *storesAtItsEnd) Open(ctx context.Context) (engine.Session, error) {
	s, err := e.Engine.Open(ctx)
	return &lateSession{s, e}, err
}

type lateSession struct {
	engine.Session
	engine *storesAtItsEnd
}

func (s *lateSession) Describe(ctx context.Context, sql string) (engine.Description, error) {
	change, ok := strings.CutSuffix(sql, " RETURNING v")
	d, err := s.Session.Describe(ctx, change)
	if ok {
		d.Rows = returned
	}
	return d, err
}

func (s *lateSession) Query(ctx context.Context, sql string, params arrow.RecordBatch) (array.RecordReader, error) {
	change, ok := strings.CutSuffix(sql, " RETURNING v")
	if !ok {
		return s.Session.Query(ctx, sql, params)
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, returned)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).Append(7)
	row := b.NewRecordBatch()
	defer row.Release()
	rows, err := array.NewRecordReader(returned, []arrow.RecordBatch{row})
	return &lateRows{RecordReader: rows, store: func() error {
		select {
		case <-time.After(s.engine.takes):
		case <-ctx.Done():
			return ctx.Err()
		}
		if s.engine.refused != nil {
			return s.engine.refused
		}
		_, err := s.Update(ctx, change, params)
		return err
	}}, err
}

type lateRows struct {
	array.RecordReader
	store func() error
	err   error
}

func (r *lateRows) Next() bool {
	if r.RecordReader.Next() {
		return true
	}
	r.err = r.store()
	return false
}

func (r *lateRows) Err() error { return r.err }

// QueryRow reads one row and closes, which must not end a change half way.
func TestTheRowOfAChangeIsGivenOnceItIsStored(t *testing.T) {
	for _, refused := range []error{nil, errors.New("a conflict that shows at the end")} {
		synctest.Test(t, func(t *testing.T) {
			engine := &storesAtItsEnd{script.New(), refused, time.Second}
			s, err := testserver.Start(testserver.Options{Profile: testserver.Strict(), Engine: engine, Listen: testserver.InMemory})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			r := rig{t, s}
			pool := r.pool("native")
			db := OpenDB(pool)
			defer func() { require.NoError(t, db.Close()) }()
			r.update(pool, "CREATE TABLE t (v BIGINT)")
			insert := func(run func(ctx context.Context, sql string, args ...any) *sql.Row) {
				var v int64
				err := run(sqldriver.WithRoute(t.Context(), flightpool.RouteQuery), "INSERT INTO t VALUES (7) RETURNING v").Scan(&v)
				if refused != nil {
					require.ErrorContains(t, err, refused.Error())
					return
				}
				require.NoError(t, err)
				require.EqualValues(t, 7, v)
			}
			insert(db.QueryRowContext)
			var n int
			require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM t").Scan(&n))
			require.Equal(t, refused == nil, n == 1)

			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			insert(tx.QueryRowContext)
			err = tx.Commit()
			require.Equal(t, refused == nil, err == nil, "%v", err)
			synctest.Wait()
		})
	}
}

// database/sql closes the rows of a transaction when its context ends.
func TestTheContextOfATransactionEndsAChangeWhoseRowsAreOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &storesAtItsEnd{script.New(), nil, time.Hour}
		s, err := testserver.Start(testserver.Options{Profile: testserver.Strict(), Engine: engine, Listen: testserver.InMemory})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		r := rig{t, s}
		pool := r.pool("native")
		db := OpenDB(pool)
		defer func() { require.NoError(t, db.Close()) }()
		r.update(pool, "CREATE TABLE t (v BIGINT)")
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		rows, err := tx.QueryContext(sqldriver.WithRoute(t.Context(), flightpool.RouteQuery), "INSERT INTO t VALUES (7) RETURNING v")
		require.NoError(t, err)
		require.True(t, rows.Next())
		time.Sleep(10 * time.Second)
		require.ErrorIs(t, tx.Commit(), sql.ErrTxDone)
		require.ErrorIs(t, rows.Err(), context.DeadlineExceeded)
		require.Zero(t, db.Stats().InUse, "database/sql has the connection back")
		var n int
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM t").Scan(&n))
		require.Zero(t, n)
	})
}
