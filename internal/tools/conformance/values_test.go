//go:build duckdb_arrow

package conformance

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/adbcpool"
	"github.com/flightpool/flightpool/flightpool/sqldriver"
	"github.com/flightpool/flightpool/rowscan"
	"github.com/stretchr/testify/require"
)

// literals makes SQL expressions of a DuckDB type, and the Go values that they
// have to arrive as.
type literals struct{ *rand.Rand }

// duckType is a type of DuckDB's and a maker of its values.
type duckType struct {
	name string
	make func() (sql string, want any)
}

func (g literals) scalar() duckType {
	integer := func(name string, bits int, as func(int64) any) duckType {
		return duckType{name, func() (string, any) {
			v := int64(g.Uint64()) >> (64 - bits)
			return fmt.Sprintf("(%d)::HUGEINT::%s", v, name), as(v)
		}}
	}
	switch g.IntN(13) {
	case 0:
		return integer("TINYINT", 8, func(v int64) any { return int8(v) })
	case 1:
		return integer("INTEGER", 32, func(v int64) any { return int32(v) })
	case 2:
		return integer("BIGINT", 63, func(v int64) any { return v })
	case 3:
		return integer("HUGEINT", 63, func(v int64) any { return decimalOf(big.NewInt(v), 0) })
	case 4:
		return duckType{"UBIGINT", func() (string, any) { v := g.Uint64(); return fmt.Sprintf("%d::UBIGINT", v), v }}
	case 5, 6:
		scale := g.IntN(37)
		return duckType{fmt.Sprintf("DECIMAL(38,%d)", scale), func() (string, any) {
			d := decimalOf(big.NewInt(int64(g.Uint64())>>g.IntN(64)), int32(scale))
			return fmt.Sprintf("'%s'::DECIMAL(38,%d)", d, scale), d
		}}
	case 7:
		return duckType{"DOUBLE", func() (string, any) { f := g.NormFloat64() * 1e10; return fmt.Sprintf("'%g'::DOUBLE", f), f }}
	case 8:
		return duckType{"BOOLEAN", func() (string, any) { v := g.IntN(2) == 0; return fmt.Sprint(v), v }}
	case 9:
		return duckType{"BLOB", func() (string, any) {
			raw := make([]byte, g.IntN(20))
			for i := range raw {
				raw[i] = byte(g.IntN(256))
			}
			return fmt.Sprintf("unhex('%s')", hex.EncodeToString(raw)), raw
		}}
	case 10:
		return duckType{"TIMESTAMP", func() (string, any) {
			at := time.UnixMicro(int64(g.Uint64()>>12) - 1<<51).UTC()
			return fmt.Sprintf("make_timestamp(%d)", at.UnixMicro()), at
		}}
	case 11:
		return duckType{"ENUM('x','y','é')", func() (string, any) {
			v := []string{"x", "y", "é"}[g.IntN(3)]
			return fmt.Sprintf("'%s'::ENUM('x','y','é')", v), v
		}}
	default:
		return duckType{"VARCHAR", func() (string, any) {
			v := []string{"", "a", "it's", "日本語", "a text that is longer than twelve bytes"}[g.IntN(5)]
			return "'" + strings.ReplaceAll(v, "'", "''") + "'", v
		}}
	}
}

func decimalOf(coefficient *big.Int, scale int32) rowscan.Decimal {
	d, err := rowscan.NewDecimal(coefficient, scale)
	if err != nil {
		panic(err)
	}
	return d
}

// nullable makes one value in five NULL.
func (g literals) nullable(t duckType) duckType {
	return duckType{t.name, func() (string, any) {
		if g.IntN(5) == 0 {
			return "NULL::" + t.name, nil
		}
		return t.make()
	}}
}

func (g literals) typ(depth int) duckType {
	if depth == 0 {
		return g.nullable(g.scalar())
	}
	of := g.typ(depth - 1)
	switch g.IntN(6) {
	case 0:
		return g.nullable(duckType{of.name + "[]", func() (string, any) { return g.list(of, g.IntN(4), "[]") }})
	case 1:
		return g.nullable(duckType{of.name + "[2]", func() (string, any) { return g.list(of, 2, "[2]") }})
	case 2:
		other := g.typ(depth - 1)
		name := fmt.Sprintf("STRUCT(a %s, b %s)", of.name, other.name)
		return g.nullable(duckType{name, func() (string, any) {
			a, wantA := of.make()
			b, wantB := other.make()
			return fmt.Sprintf("{'a': %s, 'b': %s}::%s", a, b, name), map[string]any{"a": wantA, "b": wantB}
		}})
	case 3:
		name := fmt.Sprintf("MAP(VARCHAR, %s)", of.name)
		return g.nullable(duckType{name, func() (string, any) {
			var entries []string
			want := map[string]any{}
			for i := range g.IntN(3) {
				sql, v := of.make()
				entries = append(entries, fmt.Sprintf("'k%d': %s", i, sql))
				want[fmt.Sprint("k", i)] = v
			}
			return fmt.Sprintf("MAP {%s}::%s", strings.Join(entries, ", "), name), want
		}})
	case 4:
		other := g.nullable(g.scalar())
		name := fmt.Sprintf("UNION(a %s, b %s)", of.name, other.name)
		return duckType{name, func() (string, any) {
			member, t := "a", of
			if g.IntN(2) == 0 {
				member, t = "b", other
			}
			sql, want := t.make()
			return fmt.Sprintf("union_value(%s := %s)::%s", member, sql, name), want
		}}
	default:
		return of
	}
}

func (g literals) list(of duckType, n int, suffix string) (string, any) {
	var elements []string
	want := []any{}
	for range n {
		sql, v := of.make()
		elements, want = append(elements, sql), append(want, v)
	}
	return fmt.Sprintf("[%s]::%s%s", strings.Join(elements, ", "), of.name, suffix), want
}

// pools are the three ways to a pool of a server.
func pools(t *testing.T, addr string) map[string]*flightpool.FlightSQLPool {
	t.Helper()
	cfg := flightpool.Config{MaxSize: 2}
	native, err := flightpool.New(t.Context(), "grpc://"+addr, cfg)
	require.NoError(t, err)
	over, err := adbcpool.Open(t.Context(), "grpc://"+addr, cfg)
	require.NoError(t, err)
	driver, err := flightpool.NewWith(t.Context(), foreign(t, addr), cfg)
	require.NoError(t, err)
	all := map[string]*flightpool.FlightSQLPool{"native": native, "over ADBC": over, "ADBC's driver": driver}
	for _, p := range all {
		t.Cleanup(func() { require.NoError(t, p.Close(context.WithoutCancel(t.Context()))) })
	}
	return all
}

func TestRandomValuesOfDuckDBArriveExactly(t *testing.T) {
	addr, _ := startDuckDB(t)
	all := pools(t, addr)
	g := literals{rand.New(rand.NewPCG(9, 9))}
	for range 60 {
		const columns, rows = 4, 4
		var types [columns]duckType
		for c := range types {
			types[c] = g.typ(c)
		}
		var lines []string
		var want []map[string]any
		for range rows {
			var cells []string
			line := map[string]any{}
			for c, of := range types {
				sql, v := of.make()
				cells = append(cells, sql)
				line[fmt.Sprint("c", c)] = v
			}
			lines, want = append(lines, "("+strings.Join(cells, ", ")+")"), append(want, line)
		}
		query := "SELECT * FROM (VALUES " + strings.Join(lines, ", ") + ") t(c0, c1, c2, c3)"
		for name, pool := range all {
			result, err := pool.Query(t.Context(), query)
			require.NoError(t, err, "%s: %s", name, query)
			var got []map[string]any
			for row, err := range rowscan.Maps(result) {
				require.NoError(t, err, query)
				got = append(got, row)
			}
			require.Equal(t, want, got, "%s: %s", name, query)
		}
	}
}

func TestWhatDuckDBConvertsIsNotRefusedBeforehand(t *testing.T) {
	addr, _ := startDuckDB(t)
	boolean, integer, text := arrow.FixedWidthTypes.Boolean, arrow.PrimitiveTypes.Int64, arrow.BinaryTypes.String
	for name, pool := range pools(t, addr) {
		for _, c := range []struct {
			sql   string
			as    arrow.DataType
			value string
			want  string
		}{
			{"SELECT ?::INTEGER + 1", boolean, "true", "2"},
			{"SELECT CASE WHEN ?::BOOLEAN THEN 7 END", integer, "1", "7"},
			{"SELECT i FROM range(3) t(i) WHERE i = ?", boolean, "true", "1"},
			{"SELECT ?::DATE + 1", text, `"2026-03-04"`, "2026-03-05"},
			{"SELECT ?::VARCHAR", arrow.FixedWidthTypes.Date32, `"2026-03-04"`, "2026-03-04"},
			{"SELECT ?::BLOB::VARCHAR", text, `"abc"`, "abc"},
			{"SELECT ?::DECIMAL(9,2)", integer, "12", "12.00"},
			{"SELECT DATE '2026-01-31' + ?", arrow.FixedWidthTypes.MonthDayNanoInterval, `{"months": 1, "days": 0, "nanoseconds": 0}`, "2026-02-28T00:00:00"},
		} {
			col, _, err := array.FromJSON(memory.DefaultAllocator, c.as, strings.NewReader("["+c.value+"]"))
			require.NoError(t, err)
			batch := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "p", Type: c.as, Nullable: true}}, nil), []arrow.Array{col}, 1)
			result, err := pool.QueryWithParams(t.Context(), c.sql, batch)
			require.NoError(t, err, "%s: %s", name, c.sql)
			rows := 0
			for got, err := range rowscan.Rows[string](result) {
				require.NoError(t, err)
				require.Equal(t, c.want, got, "%s: %s", name, c.sql)
				rows++
			}
			require.Equal(t, 1, rows, "%s: %s", name, c.sql)
		}
	}
}

func TestSumsAndDecimalsOfDuckDBFitWhatUsersRead(t *testing.T) {
	addr, _ := startDuckDB(t)
	for name, pool := range pools(t, addr) {
		result, err := pool.Query(t.Context(), "SELECT sum(v)::HUGEINT AS n, 1.50::DECIMAL(10,2) AS fare FROM (VALUES (2), (3)) t(v)")
		require.NoError(t, err, name)
		rows := 0
		for row, err := range rowscan.Rows[struct {
			N    int64
			Fare rowscan.Decimal
		}](result) {
			require.NoError(t, err, name)
			require.EqualValues(t, 5, row.N)
			require.Equal(t, "1.50", row.Fare.String())
			rows++
		}
		require.Equal(t, 1, rows, name)
		db := sqldriver.OpenDB(pool)
		for sql, want := range map[string]string{
			"SELECT 0.00000123::DECIMAL(10,8)":                              "0.00000123",
			"SELECT 100000000000000000000::DECIMAL(38,0)":                   "100000000000000000000",
			"SELECT 170141183460469231731687303715884105727::HUGEINT":       "170141183460469231731687303715884105727",
			"SELECT 12.50::DECIMAL(10,2)":                                   "12.50",
			"SELECT -0.05::DECIMAL(5,2)":                                    "-0.05",
			"SELECT 12345678901234567890123456789012345.678::DECIMAL(38,3)": "12345678901234567890123456789012345.678",
			"SELECT TIME '24:00:00'":                                        "86400000000000",
		} {
			var got string
			require.NoError(t, db.QueryRowContext(t.Context(), sql).Scan(&got), sql)
			require.Equal(t, want, got, "%s: %s", name, sql)
		}
		var n int64
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT sum(v) FROM (VALUES (2), (3)) t(v)").Scan(&n))
		require.EqualValues(t, 5, n)
		require.NoError(t, db.Close())
	}
}
