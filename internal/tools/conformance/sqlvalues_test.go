//go:build duckdb_arrow

package conformance

import (
	"database/sql"
	"encoding/hex"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/flightpool/flightpool/flightpool/sqldriver"
	"github.com/flightpool/flightpool/rowscan"
	"github.com/stretchr/testify/require"
)

// sqlType is a type of DuckDB's: random literals of it, and whether a value that
// database/sql gives is the one that the server writes as text.
type sqlType struct {
	name    string
	literal func(*rand.Rand) string
	same    func(v any, text string) bool
}

func asPrinted(v any, text string) bool { return fmt.Sprint(v) == text }

// number is a decimal number of up to so many digits, the longest often.
func number(r *rand.Rand, digits int) string {
	n := 1 + r.IntN(digits)
	if r.IntN(3) == 0 {
		n = digits
	}
	var b strings.Builder
	for range n {
		b.WriteByte("0123456789"[r.IntN(10)])
	}
	return b.String()
}

func wholes(name string, bits uint, signed bool) sqlType {
	return sqlType{name, func(r *rand.Rand) string {
		n, _ := new(big.Int).SetString(number(r, 40), 10)
		limit := new(big.Int).Lsh(big.NewInt(1), bits)
		switch r.IntN(4) {
		case 0:
			n.Sub(limit, big.NewInt(1)) // the highest
		case 1:
			n.SetInt64(int64(r.IntN(2))) // the lowest
		}
		n.Mod(n, limit)
		if signed {
			n.Sub(n, limit.Rsh(limit, 1))
		}
		return "'" + n.String() + "'::" + name
	}, asPrinted}
}

func decimals(precision, scale int) sqlType {
	name := fmt.Sprintf("DECIMAL(%d,%d)", precision, scale)
	return sqlType{name, func(r *rand.Rand) string {
		digits := strings.Repeat("0", scale) + number(r, precision)
		at := len(digits) - scale
		return "'" + []string{"", "-"}[r.IntN(2)] + digits[:at] + "." + digits[at:] + "'::" + name
	}, asPrinted}
}

func stamps(name string) sqlType {
	return sqlType{name, func(r *rand.Rand) string {
		at := time.Date(1+r.IntN(9998), time.Month(1+r.IntN(12)), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(1_000_000)*1000, time.UTC)
		return "'" + at.Format("2006-01-02 15:04:05.000000") + "'::" + name
	}, func(v any, text string) bool {
		at, ok := v.(time.Time)
		want, err := time.Parse("2006-01-02 15:04:05.999999", text)
		if err != nil {
			want, err = time.Parse(time.DateOnly, text)
		}
		return ok && err == nil && at.Equal(want)
	}}
}

var sqlTypes = []sqlType{
	wholes("TINYINT", 8, true), wholes("SMALLINT", 16, true), wholes("INTEGER", 32, true), wholes("BIGINT", 64, true),
	wholes("UTINYINT", 8, false), wholes("USMALLINT", 16, false), wholes("UINTEGER", 32, false), wholes("UBIGINT", 64, false),
	wholes("HUGEINT", 128, true), decimals(4, 1), decimals(9, 8), decimals(18, 0), decimals(18, 5), decimals(38, 0), decimals(38, 37), decimals(38, 10),
	stamps("DATE"), stamps("TIMESTAMP"),
	{"BOOLEAN", func(r *rand.Rand) string { return strconv.FormatBool(r.IntN(2) == 0) }, asPrinted},
	{"VARCHAR", func(r *rand.Rand) string {
		return "'" + strings.Repeat([]string{"é", "a", "“", "''", "%", `\`, "\n"}[r.IntN(7)], r.IntN(5)) + "'"
	}, asPrinted},
	{"DOUBLE", func(r *rand.Rand) string {
		return fmt.Sprintf("'%v'::DOUBLE", []float64{r.NormFloat64(), 0, 1.7976931348623157e308, 5e-324, 1e300 * r.Float64(), float64(r.IntN(9))}[r.IntN(6)])
	}, func(v any, text string) bool {
		want, err := strconv.ParseFloat(text, 64)
		return err == nil && v == want
	}},
	{"BLOB", func(r *rand.Rand) string { return fmt.Sprintf("from_hex('%08x')", r.Uint32()) }, func(v any, text string) bool {
		b, ok := v.([]byte)
		return ok && strings.EqualFold(hex.EncodeToString(b), text)
	}},
}

// TestValuesOfSQL has random values of every type come from the server, among
// NULLs, and compares each with the text that the server makes of it.
func TestValuesOfSQL(t *testing.T) {
	const rows = 40
	addr, _ := startDuckDB(t)
	for _, tested := range []string{"native", "open", "new"} {
		t.Run(tested, func(t *testing.T) {
			db := sqldriver.OpenDB(poolOf(t, tested, addr))
			defer func() { require.NoError(t, db.Close()) }()
			r := rand.New(rand.NewPCG(3, 4))
			for _, typ := range sqlTypes {
				values := []string{"(NULL::" + typ.name + ")"}
				for range rows {
					values = append(values, "("+typ.literal(r)+")", "(NULL)")
				}
				text := "x::VARCHAR"
				if typ.name == "BLOB" {
					text = "hex(x)"
				}
				query := "SELECT x, " + text + " FROM (VALUES " + strings.Join(values, ", ") + ") AS v(x)"
				got, err := db.QueryContext(t.Context(), query)
				require.NoError(t, err, typ.name)
				seen := 0
				for got.Next() {
					var v any
					var want sql.NullString
					require.NoError(t, got.Scan(&v, &want), typ.name)
					require.Equal(t, want.Valid, v != nil, typ.name)
					if want.Valid {
						require.True(t, typ.same(v, want.String), "%s: %T %v is not %s", typ.name, v, v, want.String)
					}
					seen++
				}
				require.NoError(t, got.Err())
				require.Equal(t, len(values), seen)
			}
		})
	}
}

// TestParametersOfSQL sends random values of the types that Go has, and
// compares the text that the server makes of each.
func TestParametersOfSQL(t *testing.T) {
	addr, _ := startDuckDB(t)
	for _, tested := range []string{"native", "open", "new"} {
		t.Run(tested, func(t *testing.T) {
			db := sqldriver.OpenDB(poolOf(t, tested, addr))
			defer func() { require.NoError(t, db.Close()) }()
			r := rand.New(rand.NewPCG(5, 6))
			for range 15 {
				n := r.Uint64() >> r.IntN(64)
				at := time.UnixMicro(r.Int64N(4e15)).UTC()
				decimal, err := rowscan.ParseDecimal(number(r, 38) + "." + number(r, 30))
				require.NoError(t, err)
				word := strings.Repeat([]string{"é", "'", `"`, "?", "$1", "\x01"}[r.IntN(6)], r.IntN(4))
				for _, test := range []struct {
					cast string
					v    any
					want any
				}{
					{"BIGINT", int64(n), strconv.FormatInt(int64(n), 10)}, {"UBIGINT", n, strconv.FormatUint(n, 10)},
					{"TINYINT", int8(n), strconv.Itoa(int(int8(n)))}, {"UINTEGER", uint32(n), strconv.FormatUint(uint64(uint32(n)), 10)},
					{"VARCHAR", word, word}, {"BOOLEAN", n%2 == 0, strconv.FormatBool(n%2 == 0)}, {"VARCHAR", decimal, decimal.String()},
					{"TIMESTAMP", at, strings.TrimSuffix(strings.TrimRight(at.Format("2006-01-02 15:04:05.000000"), "0"), ".")},
					{"BIGINT", nil, nil}, {"VARCHAR", sql.NullString{}, nil}, {"BLOB", []byte(nil), nil},
				} {
					var got any
					row := db.QueryRowContext(t.Context(), "SELECT CAST(CAST(? AS "+test.cast+") AS VARCHAR)", test.v)
					require.NoError(t, row.Scan(&got), "%T %v", test.v, test.v)
					require.Equal(t, test.want, got, "%T %v as %s", test.v, test.v, test.cast)
				}
				var f float64
				want := r.NormFloat64() * float64(n)
				require.NoError(t, db.QueryRowContext(t.Context(), "SELECT ?", want).Scan(&f))
				require.Equal(t, want, f)
				var b []byte
				bytes := []byte(number(r, 9))
				require.NoError(t, db.QueryRowContext(t.Context(), "SELECT ?", bytes).Scan(&b))
				require.Equal(t, bytes, b)
			}
		})
	}
}

// TestATimeOfNowIsStored sends times with nanoseconds, which DuckDB has not with a
// zone: what a column cannot hold is cut off, and what it could hold is not.
func TestATimeOfNowIsStored(t *testing.T) {
	addr, _ := startDuckDB(t)
	at := time.Date(2026, 7, 1, 2, 3, 4, 123_456_789, time.FixedZone("", 3600))
	whole := at.Truncate(time.Microsecond)
	for _, tested := range []string{"native", "open", "new"} {
		t.Run(tested, func(t *testing.T) {
			db := sqldriver.OpenDB(poolOf(t, tested, addr))
			defer func() { require.NoError(t, db.Close()) }()
			_, err := db.ExecContext(t.Context(), "CREATE OR REPLACE TABLE times (a TIMESTAMP, b TIMESTAMPTZ)")
			require.NoError(t, err)
			done, err := db.ExecContext(t.Context(), "INSERT INTO times VALUES (?, ?)", at, at)
			require.NoError(t, err)
			n, err := done.RowsAffected()
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			stmt, err := tx.PrepareContext(t.Context(), "INSERT INTO times VALUES (?, ?) RETURNING b")
			require.NoError(t, err)
			var back time.Time
			require.NoError(t, stmt.QueryRowContext(t.Context(), time.Now(), at).Scan(&back))
			require.True(t, back.Equal(whole), "%v", back)
			require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT b FROM times WHERE b <= ? LIMIT 1", time.Now()).Scan(&back))
			require.NoError(t, tx.Commit())
			var rows int
			require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM times WHERE b = ?", at).Scan(&rows))
			require.Equal(t, 2, rows)
			require.NoError(t, db.QueryRowContext(t.Context(), "SELECT ?", at).Scan(&back))
			require.True(t, back.Equal(whole), "%v", back)

			_, err = db.ExecContext(t.Context(), "CREATE OR REPLACE TABLE fine (a TIMESTAMP_NS)")
			require.NoError(t, err)
			_, err = db.ExecContext(t.Context(), "INSERT INTO fine VALUES (?)", at)
			require.NoError(t, err)
			require.NoError(t, db.QueryRowContext(t.Context(), "SELECT a FROM fine").Scan(&back))
			require.True(t, back.Equal(at), "%v", back)
		})
	}
}
