package conformance

import (
	"context"
	"database/sql"
	"encoding/json"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
)

// Go values go to DuckDB as parameters and come back as what they were.
func TestGoValuesAsParametersOfDuckDB(t *testing.T) {
	addr, _ := startDuckDB(t)
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_901_234, time.FixedZone("CET", 3600))
	price, err := flightpool.ParseDecimal("12.50")
	require.NoError(t, err)
	for name, pool := range pools(t, addr) {
		for sqlText, c := range map[string]struct{ arg, want any }{
			"SELECT ?::INTEGER + 1":                {41, "42"},
			"SELECT ? + 1":                         {int8(41), "42"},
			"SELECT ?::UBIGINT":                    {uint64(1<<64 - 1), "18446744073709551615"},
			"SELECT ?::DOUBLE":                     {0.25, "0.25"},
			"SELECT ?::BOOLEAN":                    {true, "true"},
			"SELECT upper(?)":                      {"ab", "AB"},
			"SELECT ?::BLOB":                       {[]byte("ab"), "ab"},
			"SELECT ?::DECIMAL(9,2) * 2":           {price, "25.00"},
			"SELECT (?::TIMESTAMP)::VARCHAR":       {at, "2026-01-02 02:04:05.678901"},
			"SELECT ?::INTEGER IS NULL":            {nil, "true"},
			"SELECT ?::INTEGER IS NULL AND TRUE":   {(*int)(nil), "true"},
			"SELECT coalesce(?, 'none')":           {sql.NullString{}, "none"},
			"SELECT json_extract_string(?, '$.a')": {json.RawMessage(`{"a":"x"}`), "x"},
			"SELECT list_sum(?)::INTEGER":          {[]int{40, 2}, "42"},
			"SELECT 'b' IN (SELECT unnest(?))":     {[]string{"a", "b"}, "true"},
			"SELECT len(?::INTEGER[])":             {[]int{}, "0"},
			"SELECT (?::TIMESTAMP_NS[])[1]::TEXT":  {[]time.Time{at}, "2026-01-02 02:04:05.678901234"},
			"SELECT $b || $a || $b":                {named{"a", "y", "b", "x"}, "xyx"},
			"SELECT ? || ''":                       {netip.MustParseAddr("10.0.0.1"), "10.0.0.1"},
		} {
			var got string
			require.NoError(t, pool.QueryRow(t.Context(), sqlText, argsOf(c.arg)...).Scan(&got), "%s: %s", name, sqlText)
			require.Equal(t, c.want, got, "%s: %s", name, sqlText)
		}

		_, err := pool.Update(t.Context(), "CREATE OR REPLACE TABLE flights (flight_no INTEGER, origin VARCHAR, dep_time TIMESTAMP, fare DECIMAL(9,2))")
		require.NoError(t, err)
		for i, origin := range []any{"BER", nil} {
			done, err := pool.Update(t.Context(), "INSERT INTO flights VALUES (?, ?, ?, ?)", i, origin, at, price)
			require.NoError(t, err, name)
			require.EqualValues(t, 1, done.RowsAffected)
		}
		type flight struct {
			FlightNo int
			Origin   *string
			DepTime  time.Time
			Fare     flightpool.Decimal
		}
		flights, err := flightpool.CollectRows[flight](pool.Query(t.Context(), "SELECT * FROM flights WHERE flight_no < ? ORDER BY ALL", 5))
		require.NoError(t, err, name)
		require.Len(t, flights, 2)
		require.Equal(t, "BER", *flights[0].Origin)
		require.Nil(t, flights[1].Origin)
		require.Equal(t, "12.50", flights[0].Fare.String())
		require.Equal(t, at.UTC().Truncate(time.Microsecond), flights[0].DepTime)
		_, err = flightpool.CollectOneRow[flight](pool.Query(t.Context(), "SELECT * FROM flights WHERE origin = ?", "JFK"))
		require.ErrorIs(t, err, flightpool.ErrNoRows)
		_, err = pool.Query(t.Context(), "SELECT ?", 1, 2)
		require.ErrorContains(t, err, "2", "%s: too many", name)

		// Within a transaction QueryRow ends early and harms nothing.
		s, err := pool.AcquireSession(t.Context())
		require.NoError(t, err)
		require.NoError(t, s.BeginTransaction(t.Context()))
		_, err = s.Update(t.Context(), "DELETE FROM flights WHERE origin = ?", "BER")
		require.NoError(t, err)
		var n int
		require.NoError(t, s.QueryRow(t.Context(), "SELECT i FROM range(?) t(i)", 100_000).Scan(&n))
		require.NoError(t, s.Commit(t.Context()), name)
		require.NoError(t, s.Close())
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM flights").Scan(&n))
		require.Equal(t, 1, n, name)
	}
}

// A time that is compared with a date or a time of day is one: DuckDB would compare the whole
// of a timestamp. A time of day is found by the duration that it is read as, too.
func TestATimeIsTheDateOrTimeOfDayThatDuckDBTells(t *testing.T) {
	addr, _ := startDuckDB(t)
	at := time.Date(2026, 1, 2, 0, 4, 5, 678_901_234, time.FixedZone("CET", 3600))
	for name, pool := range pools(t, addr) {
		_, err := pool.Update(t.Context(), "CREATE OR REPLACE TABLE days (d DATE, t TIME)")
		require.NoError(t, err)
		_, err = pool.Update(t.Context(), "INSERT INTO days VALUES (?, ?)", at, at)
		require.NoError(t, err, name)
		var of time.Duration
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT t FROM days").Scan(&of))
		require.Equal(t, 4*time.Minute+5*time.Second+678_901*time.Microsecond, of)
		for _, where := range []struct {
			sql string
			arg any
		}{
			{"d = ?", at}, {"t = ?", at}, {"t = ?", of}, {"d IN (?)", at}, {"d BETWEEN ? AND DATE '2026-01-02'", at}, {"list_contains([d], ?)", at},
			{"list_contains(?::DATE[], d)", []time.Time{at}}, {"d = ?::DATE", at}, {"t = ?::TIME", of}, {"d = ?", "2026-01-02"}, {"d = ?", time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)},
		} {
			var n int
			require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM days WHERE "+where.sql, where.arg).Scan(&n), "%s: %s", name, where.sql)
			require.Equal(t, 1, n, "%s: %s %v", name, where.sql, where.arg)
		}
	}
}

// Transactions as values: of those that collide one is run again, and what a Tx has not
// committed is not there.
func TestTransactionsAsValuesOnDuckDB(t *testing.T) {
	addr, _ := startDuckDB(t)
	for name, pool := range pools(t, addr) {
		_, err := pool.Update(t.Context(), "CREATE OR REPLACE TABLE account (id INTEGER, balance INTEGER)")
		require.NoError(t, err, name)
		_, err = pool.Update(t.Context(), "INSERT INTO account VALUES (1, 0)")
		require.NoError(t, err, name)

		runs := 0
		var collided error
		require.NoError(t, pool.InTx(t.Context(), flightpool.TxOptions{}, func(ctx context.Context, tx *flightpool.Tx) error {
			runs++
			var balance int
			if err := tx.QueryRow(ctx, "SELECT balance FROM account WHERE id = ?", 1).Scan(&balance); err != nil {
				return err
			}
			if runs == 1 { // another is faster
				if _, err := pool.Update(ctx, "UPDATE account SET balance = 10 WHERE id = 1"); err != nil {
					return err
				}
			}
			_, err := tx.Update(ctx, "UPDATE account SET balance = ? WHERE id = 1", balance+1)
			if err != nil {
				collided = err
			}
			return err
		}), name)
		require.Equal(t, 2, runs, name)
		require.True(t, flightpool.IsConflict(collided), "%s: %v", name, collided)

		tx, err := pool.BeginTx(t.Context(), flightpool.TxOptions{})
		require.NoError(t, err, name)
		_, err = tx.Update(t.Context(), "UPDATE account SET balance = 0")
		require.NoError(t, err, name)
		rows, err := tx.Query(t.Context(), "SELECT i FROM range(100000) t(i)")
		require.NoError(t, err, name)
		require.ErrorIs(t, tx.Commit(t.Context()), flightpool.ErrBusy, name)
		err = tx.Rollback(t.Context())
		if name == "ADBC's driver" { // the cancel costs the session, of which server is not known: some had stored it
			require.ErrorIs(t, err, flightpool.ErrSessionLost, name)
		} else {
			require.NoError(t, err, name)
		}
		rows.Release()
		require.ErrorIs(t, tx.Commit(t.Context()), flightpool.ErrHandleClosed, name)

		var balance int
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT balance FROM account").Scan(&balance), name)
		require.Equal(t, 11, balance, name)
	}
}

// named are named parameters: names and values in turn.
type named []string

func argsOf(arg any) []any {
	pairs, ok := arg.(named)
	if !ok {
		return []any{arg}
	}
	var args []any
	for i := 0; i < len(pairs); i += 2 {
		args = append(args, sql.Named(pairs[i], pairs[i+1]))
	}
	return args
}

// Times of nanoseconds are kept where the server tells that a parameter has them, in
// lists too; and named parameters that the statement does not have are refused.
func TestParametersThatDuckDBTellsOf(t *testing.T) {
	addr, _ := startDuckDB(t)
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_901_234, time.UTC)
	local := time.Date(2026, 1, 3, 0, 4, 5, 678_901_234, time.FixedZone("CET", 3600)) // of another day in UTC
	for name, pool := range pools(t, addr) {
		_, err := pool.Update(t.Context(), "CREATE OR REPLACE TABLE fine (\"at\" TIMESTAMP_NS, all_of_them TIMESTAMP_NS[])")
		require.NoError(t, err, name)
		_, err = pool.Update(t.Context(), "INSERT INTO fine VALUES ($at, $all)", sql.Named("all", []time.Time{at, {}}[:1]), sql.Named("at", at))
		require.NoError(t, err, name)
		row, err := flightpool.CollectOneRow[map[string]any](pool.Query(t.Context(), "SELECT * FROM fine"))
		require.NoError(t, err, name)
		require.Equal(t, map[string]any{"at": at, "all_of_them": []any{at}}, row, name)

		// Not the clock of the session's zone.
		require.NoError(t, pool.WithSession(t.Context(), func(ctx context.Context, s *flightpool.SessionHandle) error {
			if _, err := s.Update(ctx, "SET TimeZone = 'Asia/Tokyo'"); err != nil {
				return err
			}
			if _, err := s.Update(ctx, "UPDATE fine SET \"at\" = ?", at.Truncate(time.Second)); err != nil {
				return err
			}
			_, err := s.Update(ctx, "CREATE OR REPLACE TABLE days AS SELECT ?::DATE AS \"day\", ?::TIME AS clock, ?::DATE[] AS \"days\"",
				local, local, []time.Time{local})
			return err
		}), name)
		day, err := flightpool.CollectOneRow[map[string]any](pool.Query(t.Context(), "SELECT \"day\"::VARCHAR AS d, clock::VARCHAR AS c, \"days\"::VARCHAR AS all_of_them FROM days"))
		require.NoError(t, err, name)
		require.Equal(t, map[string]any{"d": "2026-01-03", "c": "00:04:05.678901", "all_of_them": "[2026-01-03]"}, day, name)
		var stored time.Time
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT \"at\" FROM fine").Scan(&stored), name)
		require.Equal(t, at.Truncate(time.Second), stored, name)

		_, err = pool.Query(t.Context(), "SELECT $a", sql.Named("b", 1))
		require.ErrorContains(t, err, `the statement has no parameter "b"`, name)
		_, err = pool.Query(t.Context(), "SELECT ?", sql.Named("b", 1))
		require.ErrorContains(t, err, `parameter "1" of the statement is not given`, name)
	}
}

// Structs that are stored come back as what they were.
func TestStructsAreIngestedIntoDuckDB(t *testing.T) {
	addr, _ := startDuckDB(t)
	price, err := flightpool.ParseDecimal("12.50")
	require.NoError(t, err)
	type flight struct {
		FlightNo int32
		Origin   *string
		DepTime  time.Time
		Fare     flightpool.Decimal
		Late     sql.Null[bool]
		Legs     []string
		Note     []byte `arrow:"remark"`
	}
	origin := "BER"
	want := []flight{
		{1, &origin, time.Date(2026, 1, 2, 3, 4, 5, 678_901_000, time.UTC), price, sql.Null[bool]{V: true, Valid: true}, []string{"a", "b"}, []byte("x")},
		{2, nil, time.Date(1969, 1, 2, 3, 4, 5, 0, time.UTC), price, sql.Null[bool]{}, []string{}, []byte{}},
	}
	for name, pool := range pools(t, addr) {
		_, err := pool.Update(t.Context(), "CREATE OR REPLACE TABLE flights (flight_no INTEGER, origin VARCHAR, dep_time TIMESTAMP, fare DECIMAL(9,2), late BOOLEAN, legs VARCHAR[], remark BLOB)")
		require.NoError(t, err, name)
		n, err := flightpool.IngestRows(t.Context(), pool, "flights", slices.Values([]flight{}), flightpool.IngestOptions{})
		require.NoError(t, err, name)
		require.Zero(t, n, name)
		_, err = flightpool.IngestRows(t.Context(), pool, "flights", slices.Values(want), flightpool.IngestOptions{})
		require.NoError(t, err, name)
		got, err := flightpool.CollectRows[flight](pool.Query(t.Context(), "SELECT * FROM flights ORDER BY flight_no"))
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
	}
}

// A table that the ingestion makes has decimals for Decimals.
func TestDecimalsAreIngestedIntoDuckDBAsDecimals(t *testing.T) {
	addr, _ := startDuckDB(t)
	type price struct {
		ID   int32
		Fare flightpool.Decimal
		Off  *flightpool.Decimal
	}
	var all []flightpool.Decimal
	for _, text := range []string{"12.50", "-0.05", "9999999999999999999999999999999999.99", "0.00"} {
		d, err := flightpool.ParseDecimal(text)
		require.NoError(t, err)
		all = append(all, d)
	}
	want := []price{{1, all[0], nil}, {2, all[1], &all[0]}, {3, all[2], nil}, {4, all[3], &all[2]}}
	for name, pool := range pools(t, addr) {
		_, err := pool.Update(t.Context(), "DROP TABLE IF EXISTS prices")
		require.NoError(t, err, name)
		_, err = flightpool.IngestRows(t.Context(), pool, "prices", slices.Values(want), flightpool.IngestOptions{})
		require.NoError(t, err, name)
		got, err := flightpool.CollectRows[price](pool.Query(t.Context(), "SELECT * FROM prices ORDER BY id"))
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
		kind, err := flightpool.CollectOneRow[string](pool.Query(t.Context(), "SELECT typeof(fare) FROM prices"))
		require.NoError(t, err, name)
		require.Equal(t, "DECIMAL(38,2)", kind, name)
	}
}
