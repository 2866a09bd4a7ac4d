package adbcpool

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/big"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/sqldriver"
	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/script"
)

// sqlKinds runs test for each backend.
func sqlKinds(t *testing.T, p testserver.Profile, test func(r rig, pool *flightpool.FlightSQLPool, db *sql.DB)) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			inBubble(t, p, func(r rig) {
				pool := r.pool(kind)
				db := OpenDB(pool)
				defer func() { require.NoError(r, db.Close()) }()
				test(r, pool, db)
			})
		})
	}
}

func TestSQLKeepsNoConnectionOfItsOwn(t *testing.T) {
	sqlKinds(t, testserver.Strict(), func(r rig, pool *flightpool.FlightSQLPool, db *sql.DB) {
		for range 5 {
			require.NoError(r, db.PingContext(r.Context()))
			rows, err := db.QueryContext(r.Context(), generate(3))
			require.NoError(r, err)
			require.NoError(r, rows.Close())
			synctest.Wait()
			require.Zero(r, db.Stats().Idle)
			require.Zero(r, pool.Stats().InUse, "it is back in the pool")
		}
		require.LessOrEqual(r, pool.Stats().Total, 2)
	})
}

func TestSQLPingReachesTheServer(t *testing.T) {
	sqlKinds(t, testserver.Strict(), func(r rig, pool *flightpool.FlightSQLPool, db *sql.DB) {
		require.NoError(r, db.PingContext(r.Context()))
		hang := r.server.Faults().Set(testserver.Fault{On: testserver.OnGetFlightInfo, Do: testserver.Hang()})
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		require.ErrorIs(r, db.PingContext(ctx), context.DeadlineExceeded)
		hang.Clear()
	})
}

func TestSQLParametersNeedNoPrepare(t *testing.T) {
	sqlKinds(t, testserver.Strict(), func(r rig, pool *flightpool.FlightSQLPool, db *sql.DB) {
		_, err := db.ExecContext(r.Context(), "CREATE TABLE t (v BIGINT, s VARCHAR, d DOUBLE, b BOOLEAN)")
		require.NoError(r, err)
		done, err := db.ExecContext(r.Context(), "INSERT INTO t VALUES (?, ?, ?, ?)", 7, "seven", 7.5, true)
		require.NoError(r, err)
		n, err := done.RowsAffected()
		require.NoError(r, err)
		require.EqualValues(r, 1, n)
		_, err = done.LastInsertId()
		require.Error(r, err)
		_, err = db.ExecContext(r.Context(), "INSERT INTO t VALUES (?, ?, ?, ?)", int8(8), nil, float32(0.5), sql.NullBool{})
		require.NoError(r, err)

		var v int
		var s sql.NullString
		var d float64
		var b sql.NullBool
		require.NoError(r, db.QueryRowContext(r.Context(), "SELECT * FROM t WHERE v = ?", 7).Scan(&v, &s, &d, &b))
		require.Equal(r, []any{7, sql.NullString{String: "seven", Valid: true}, 7.5, sql.NullBool{Bool: true, Valid: true}}, []any{v, s, d, b})
		require.NoError(r, db.QueryRowContext(r.Context(), "SELECT * FROM t WHERE v = ?", uint32(8)).Scan(&v, &s, &d, &b))
		require.Equal(r, []any{8, sql.NullString{}, 0.5, sql.NullBool{}}, []any{v, s, d, b})
		require.ErrorIs(r, db.QueryRowContext(r.Context(), "SELECT * FROM t WHERE v = ?", 9).Scan(&v, &s, &d, &b), sql.ErrNoRows)

		_, err = db.ExecContext(r.Context(), "INSERT INTO t VALUES (?, ?, ?, ?)", sql.Named("v", 1), 2, 3, 4)
		require.ErrorContains(r, err, "by position")
		_, err = db.ExecContext(r.Context(), "INSERT INTO t VALUES (?, ?, ?, ?)", struct{}{}, 2, 3, 4)
		require.ErrorContains(r, err, "unsupported type")
		time.Sleep(time.Second) // statements are closed behind the caller
		require.Zero(r, r.server.Ledger().Snapshot().Prepared, "none is left on the server")
	})
}

func TestSQLQueryRowCancelsNothingThatHasEnded(t *testing.T) {
	sqlKinds(t, testserver.Strict(), func(r rig, pool *flightpool.FlightSQLPool, db *sql.DB) {
		var v int
		require.NoError(r, db.QueryRowContext(r.Context(), generate(1)).Scan(&v))
		time.Sleep(10 * time.Second)
		stats := pool.Stats()
		require.Zero(r, stats.CancelsConfirmed+stats.CancelsUnconfirmed)

		require.NoError(r, db.QueryRowContext(r.Context(), generate(1_000_000)).Scan(&v))
		require.NoError(r, r.server.Ledger().WaitIdle(r.Context()), "what goes on is stopped")

		r.server.Faults().Set(testserver.Fault{On: testserver.OnBatch, Skip: 1, SQL: "generate(2000)", Do: testserver.Hang()})
		began := time.Now()
		rows, err := db.QueryContext(r.Context(), generate(2000))
		require.NoError(r, err)
		for range 1024 { // the first batch
			require.True(r, rows.Next())
		}
		require.NoError(r, rows.Close())
		require.LessOrEqual(r, time.Since(began), 10*time.Millisecond, "nor is the end waited for")
		r.server.Faults().Clear()
	})
}

func TestSQLPreparedStatementsRunAgain(t *testing.T) {
	sqlKinds(t, testserver.Strict(), func(r rig, pool *flightpool.FlightSQLPool, db *sql.DB) {
		_, err := db.ExecContext(r.Context(), "CREATE TABLE t (v BIGINT)")
		require.NoError(r, err)
		conn, err := db.Conn(r.Context())
		require.NoError(r, err)
		defer func() { require.NoError(r, conn.Close()) }()
		stmt, err := conn.PrepareContext(r.Context(), "INSERT INTO t VALUES (?)")
		require.NoError(r, err)
		for v := range 3 {
			_, err = stmt.ExecContext(r.Context(), v)
			require.NoError(r, err)
		}
		require.NoError(r, stmt.Close())
		var n int
		require.NoError(r, conn.QueryRowContext(r.Context(), "SELECT count(*) FROM t").Scan(&n))
		require.Equal(r, 3, n)
		require.Zero(r, r.server.Ledger().Snapshot().Prepared)
	})
}

func TestSQLTransactions(t *testing.T) {
	sqlKinds(t, testserver.Strict(), func(r rig, pool *flightpool.FlightSQLPool, db *sql.DB) {
		_, err := db.ExecContext(r.Context(), "CREATE TABLE t (v BIGINT)")
		require.NoError(r, err)
		count := func() (n int) {
			require.NoError(r, db.QueryRowContext(r.Context(), "SELECT count(*) FROM t").Scan(&n))
			return n
		}
		for _, commit := range []bool{true, false} {
			tx, err := db.BeginTx(r.Context(), nil)
			require.NoError(r, err)
			_, err = tx.ExecContext(r.Context(), "INSERT INTO t VALUES (1)")
			require.NoError(r, err)
			if commit {
				require.NoError(r, tx.Commit())
			} else {
				require.NoError(r, tx.Rollback())
			}
			require.Equal(r, 1, count())
		}

		ctx, cancel := context.WithCancel(r.Context())
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(r, err)
		_, err = tx.ExecContext(ctx, "INSERT INTO t VALUES (2)")
		require.NoError(r, err)
		cancel() // rolls back, by database/sql
		synctest.Wait()
		require.Error(r, tx.Commit())
		require.Zero(r, pool.Stats().RolledBack, "not left to the pool")
		require.Equal(r, 1, count())

		tx, err = db.BeginTx(r.Context(), nil)
		require.NoError(r, err)
		_, err = tx.ExecContext(r.Context(), "SELECT error('no')")
		require.Error(r, err)
		require.ErrorIs(r, tx.Commit(), flightpool.ErrTxAborted)

		_, err = db.BeginTx(r.Context(), &sql.TxOptions{ReadOnly: true})
		require.ErrorContains(r, err, "read-only")
		_, err = db.BeginTx(r.Context(), &sql.TxOptions{Isolation: sql.LevelSerializable})
		require.ErrorContains(r, err, "isolation")
		require.Zero(r, r.server.Ledger().Snapshot().Transactions)
	})
}

func TestSQLContextsEndStatementsOnTheServer(t *testing.T) {
	sqlKinds(t, testserver.Strict(), func(r rig, pool *flightpool.FlightSQLPool, db *sql.DB) {
		for _, run := range []func(ctx context.Context) error{
			func(ctx context.Context) error {
				rows, err := db.QueryContext(ctx, "SELECT * FROM endless('1h')")
				if err == nil {
					err = errors.Join(rows.Err(), rows.Close())
				}
				return err
			},
			func(ctx context.Context) error {
				_, err := db.ExecContext(ctx, "SELECT sleep('1h')")
				return err
			},
		} {
			ctx, cancel := context.WithTimeout(r.Context(), time.Second)
			began := time.Now()
			err := run(ctx)
			cancel()
			require.ErrorIs(r, err, context.DeadlineExceeded)
			require.LessOrEqual(r, time.Since(began), time.Second+50*time.Millisecond)
			require.NoError(r, r.server.Ledger().WaitIdle(r.Context()))
		}
		require.NoError(r, db.PingContext(r.Context()))
	})
}

func TestSQLTriesAnotherConnectionWhenTheLastIsGone(t *testing.T) {
	for _, kind := range []string{"native", "open"} {
		t.Run(kind, func(t *testing.T) {
			inBubble(t, testserver.Strict(), func(r rig) {
				db := OpenDB(r.pool(kind))
				defer func() { require.NoError(r, db.Close()) }()
				conn, err := db.Conn(r.Context())
				require.NoError(r, err)
				r.server.Faults().KillConns()
				synctest.Wait()
				const insert = "CREATE TABLE t (v BIGINT)"
				_, err = conn.ExecContext(r.Context(), insert)
				require.ErrorIs(r, err, driver.ErrBadConn, "a Conn is one session: it is not replaced")
				require.ErrorIs(r, conn.Close(), sql.ErrConnDone)
				_, err = db.ExecContext(r.Context(), insert)
				require.NoError(r, err)
				require.Equal(r, 1, r.executions(insert))

				tx, err := db.BeginTx(r.Context(), nil)
				require.NoError(r, err)
				r.server.Faults().KillConns()
				synctest.Wait()
				err = tx.Commit()
				require.ErrorIs(r, err, flightpool.ErrSessionLost)
				require.NotErrorIs(r, err, driver.ErrBadConn, "a commit is not tried elsewhere")
			})
		})
	}
}

func TestSQLNeverRepeatsAChangeWhoseReplyIsLost(t *testing.T) {
	sqlKinds(t, testserver.Strict(), func(r rig, pool *flightpool.FlightSQLPool, db *sql.DB) {
		const insert = "CREATE TABLE t (v BIGINT)"
		r.server.Faults().Set(testserver.Fault{On: testserver.OnDoPut, After: true, SQL: insert, Times: 1, Do: testserver.Kill()})
		_, err := db.ExecContext(r.Context(), insert)
		require.ErrorIs(r, err, flightpool.ErrSessionLost)
		require.NotErrorIs(r, err, driver.ErrBadConn)
		require.Equal(r, 1, r.executions(insert))
	})
}

// TestSQLIdleConnectionsAreThePools has database/sql keep connections, in vain: a
// session that it kept would be on loan, and carry what its last user has left.
func TestSQLIdleConnectionsAreThePools(t *testing.T) {
	inBubble(t, testserver.Strict(), func(r rig) {
		db := OpenDB(r.pool("open"))
		defer func() { require.NoError(r, db.Close()) }()
		db.SetMaxIdleConns(1)
		_, err := db.ExecContext(r.Context(), "SET flavour = 'sour'")
		require.NoError(r, err)
		require.Zero(r, db.Stats().Idle)
		var flavour sql.NullString
		_ = db.QueryRowContext(r.Context(), "SELECT current_setting('flavour')").Scan(&flavour)
		require.NotEqual(r, "sour", flavour.String)
	})
}

func TestSQLCarriesEveryArrowType(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 890_000_000, time.UTC)
	fields := []struct {
		t     arrow.DataType
		json  string
		want  any
		named string
	}{
		{arrow.FixedWidthTypes.Boolean, `true`, true, "BOOL"},
		{arrow.PrimitiveTypes.Int8, `-8`, int64(-8), "INT8"},
		{arrow.PrimitiveTypes.Int16, `-16`, int64(-16), "INT16"},
		{arrow.PrimitiveTypes.Int32, `-32`, int64(-32), "INT32"},
		{arrow.PrimitiveTypes.Int64, `-64`, int64(-64), "INT64"},
		{arrow.PrimitiveTypes.Uint8, `8`, int64(8), "UINT8"},
		{arrow.PrimitiveTypes.Uint16, `16`, int64(16), "UINT16"},
		{arrow.PrimitiveTypes.Uint32, `32`, int64(32), "UINT32"},
		{arrow.PrimitiveTypes.Uint64, `18446744073709551615`, "18446744073709551615", "UINT64"},
		{arrow.FixedWidthTypes.Float16, `1.5`, 1.5, "FLOAT16"},
		{arrow.PrimitiveTypes.Float32, `2.5`, 2.5, "FLOAT32"},
		{arrow.PrimitiveTypes.Float64, `3.5`, 3.5, "FLOAT64"},
		{arrow.BinaryTypes.String, `"text"`, "text", "UTF8"},
		{arrow.BinaryTypes.LargeString, `"large"`, "large", "LARGE_UTF8"},
		{arrow.BinaryTypes.Binary, `"AQI="`, []byte{1, 2}, "BINARY"},
		{&arrow.FixedSizeBinaryType{ByteWidth: 2}, `"AQI="`, []byte{1, 2}, "FIXED_SIZE_BINARY"},
		{arrow.FixedWidthTypes.Date32, `"2026-03-04"`, at.Truncate(24 * time.Hour), "DATE32"},
		{arrow.FixedWidthTypes.Timestamp_ms, `"2026-03-04T05:06:07.890Z"`, at, "TIMESTAMP"},
		{arrow.FixedWidthTypes.Time64us, `"00:00:01.5"`, int64(1500 * time.Millisecond), "TIME64"},
		{arrow.FixedWidthTypes.Duration_ms, `"250ms"`, int64(250 * time.Millisecond), "DURATION"},
		{arrow.Null, `null`, nil, "NULL"},
		{arrow.ListOf(arrow.PrimitiveTypes.Int32), `[1, 2]`, []any{int64(1), int64(2)}, "LIST"},
		{arrow.StructOf(arrow.Field{Name: "a", Type: arrow.PrimitiveTypes.Int8}), `{"a": 1}`, map[string]any{"a": int64(1)}, "STRUCT"},
	}
	columns := make([]arrow.Field, len(fields))
	line := ""
	for i, f := range fields {
		columns[i] = arrow.Field{Name: fmt.Sprintf("c%d", i), Type: f.t, Nullable: true}
		line += fmt.Sprintf(`,"c%d": %s`, i, f.json)
	}
	schema := arrow.NewSchema(columns, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	require.NoError(t, b.UnmarshalJSON([]byte("{"+line[1:]+"}")))
	for i := range fields {
		b.Field(i).AppendNull()
	}
	batch := b.NewRecordBatch()
	defer batch.Release()
	answers := script.New()
	answers.On("SELECT types", script.Rows(batch))

	synctest.Test(t, func(t *testing.T) {
		s, err := testserver.Start(testserver.Options{Engine: answers, Listen: testserver.InMemory})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		r := rig{t, s}
		db := OpenDB(r.pool("open"))
		defer func() { require.NoError(t, db.Close()) }()
		rows, err := db.QueryContext(t.Context(), "SELECT types")
		require.NoError(t, err)
		defer func() { require.NoError(t, rows.Close()) }()
		types, err := rows.ColumnTypes()
		require.NoError(t, err)
		for line := range 2 {
			require.True(t, rows.Next())
			got := make([]any, len(fields))
			for i := range got {
				got[i] = new(any)
			}
			require.NoError(t, rows.Scan(got...))
			for i, f := range fields {
				v := *got[i].(*any)
				if line == 1 {
					require.Nil(t, v, f.t)
					continue
				}
				require.Equal(t, f.want, v, f.t)
				require.Equal(t, f.named, types[i].DatabaseTypeName())
				nullable, ok := types[i].Nullable()
				require.True(t, nullable && ok)
			}
		}
		require.False(t, rows.Next())
		require.NoError(t, rows.Err())
	})
}

func TestSQLCarriesDecimals(t *testing.T) {
	kind := &arrow.Decimal128Type{Precision: 20, Scale: 2}
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "d", Type: kind}}, nil))
	defer b.Release()
	b.Field(0).(*array.Decimal128Builder).Append(decimal128.FromBigInt(big.NewInt(123456789012345678)))
	batch := b.NewRecordBatch()
	defer batch.Release()
	answers := script.New()
	answers.On("SELECT decimal", script.Rows(batch))
	synctest.Test(t, func(t *testing.T) {
		s, err := testserver.Start(testserver.Options{Engine: answers, Listen: testserver.InMemory})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		db := OpenDB(rig{t, s}.pool("open"))
		defer func() { require.NoError(t, db.Close()) }()
		var text string
		var d float64
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT decimal").Scan(&text))
		require.Equal(t, "1234567890123456.78", text)
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT decimal").Scan(&d))
		require.InDelta(t, 1234567890123456.78, d, 1)
		rows, err := db.QueryContext(t.Context(), "SELECT decimal")
		require.NoError(t, err)
		defer func() { require.NoError(t, rows.Close()) }()
		types, err := rows.ColumnTypes()
		require.NoError(t, err)
		precision, scale, ok := types[0].DecimalSize()
		require.Equal(t, []any{int64(20), int64(2), true}, []any{precision, scale, ok})
	})
}

// Exec wants a statement's effect, so that no text is ambiguous to it.
func TestExecRunsWhatQueryRefuses(t *testing.T) {
	inBubble(t, testserver.Strict(), func(r rig) {
		db := OpenDB(r.pool("open"))
		defer func() { require.NoError(r, db.Close()) }()
		const sql = "INSERT INTO t VALUES (1); SELECT count(*) FROM t"
		_, err := db.QueryContext(r.Context(), sql)
		require.ErrorIs(r, err, flightpool.ErrAmbiguousRoute)
		for _, sql := range []string{sql, "OPTIMIZE TABLE t"} {
			_, err = db.ExecContext(r.Context(), sql)
			require.Error(r, err, "the server refuses it")
			require.NotErrorIs(r, err, flightpool.ErrAmbiguousRoute)
		}
		stmt, err := db.PrepareContext(r.Context(), "OPTIMIZE TABLE t")
		if err == nil {
			_, err = stmt.ExecContext(r.Context())
			require.NoError(r, stmt.Close())
		}
		require.Error(r, err)
		require.NotErrorIs(r, err, flightpool.ErrAmbiguousRoute)
	})
}

// A statement whose text leaves open how it is sent goes as the caller says.
func TestWithRouteGivesTheRowsOfWhatQueryRefuses(t *testing.T) {
	const text = "OPTIMIZE TABLE t"
	for _, kind := range kinds {
		synctest.Test(t, func(t *testing.T) {
			b := array.NewInt64Builder(memory.DefaultAllocator)
			defer b.Release()
			b.Append(7)
			schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64}}, nil)
			engine := script.New()
			engine.On(text, script.Rows(array.NewRecordBatch(schema, []arrow.Array{b.NewArray()}, 1)))
			s, err := testserver.Start(testserver.Options{Engine: engine, Listen: testserver.InMemory})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			r := rig{t, s}
			pool := r.pool(kind)
			db := OpenDB(pool)
			defer func() { require.NoError(r, db.Close()) }()
			asQuery := sqldriver.WithRoute(r.Context(), flightpool.RouteQuery)
			value := func(row *sql.Row) (n int, err error) { return n, row.Scan(&n) }

			_, err = value(db.QueryRowContext(r.Context(), text))
			require.ErrorIs(r, err, flightpool.ErrAmbiguousRoute)
			n, err := value(db.QueryRowContext(asQuery, text))
			require.NoError(r, err)
			require.Equal(r, 7, n)
			_, err = db.ExecContext(asQuery, text)
			require.NoError(r, err, "Exec drops the rows")

			stmt, err := db.PrepareContext(asQuery, text)
			require.NoError(r, err)
			n, err = value(stmt.QueryRowContext(asQuery))
			require.NoError(r, err)
			require.Equal(r, 7, n)
			require.NoError(r, stmt.Close())

			tx, err := db.BeginTx(r.Context(), nil)
			require.NoError(r, err)
			n, err = value(tx.QueryRowContext(asQuery, text))
			require.NoError(r, err)
			require.Equal(r, 7, n)
			stmt, err = tx.PrepareContext(r.Context(), text)
			require.NoError(r, err)
			n, err = value(stmt.QueryRowContext(asQuery))
			require.NoError(r, err)
			require.Equal(r, 7, n)
			require.NoError(r, stmt.Close())
			require.NoError(r, tx.Commit())

			_, err = value(db.QueryRowContext(sqldriver.WithRoute(r.Context(), 7), text))
			require.ErrorContains(r, err, "Route 7")
			require.Equal(r, 5, r.executions(text))
		})
	}
}
