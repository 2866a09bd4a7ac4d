//go:build duckdb_arrow

package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// paramValues are values of each parameter type, as Arrow's builders read them.
var paramValues = map[string][]string{
	"bool": {"true", "false"},
	"int8": {"-128", "0", "127"}, "int16": {"-32768", "1"}, "int32": {"0", "1", "2", "-2147483648"}, "int64": {"0", "7", "9223372036854775807"},
	"uint8": {"0", "255"}, "uint16": {"65535"}, "uint32": {"4294967295"}, "uint64": {"0", "18446744073709551615"},
	"float32": {"0.5", "-1"}, "float64": {"0.1", "-0.5", "1e300", "NaN", "-Inf"},
	"utf8": {"", "a", "it's", "漢字", "'; DROP TABLE t0; --"}, "large_utf8": {"large"}, "binary": {"AP8=", ""},
	"date32": {"1970-01-01", "2024-02-29"}, "time64us": {"12:34:56.789012"},
	"timestamp_us": {"2024-02-29 12:34:56.789012"}, "timestamp_us_utc": {"2024-02-29 12:34:56Z"},
	"decimal(10,2)": {"1.25", "-99999999.99"}, "decimal(38,10)": {"0.0000000001"},
	"dictionary<utf8>": {"red", "x"}, "null": {},
}

var paramNames = slices.Sorted(maps.Keys(paramValues))

// paramsFor makes parameters: of types that mostly suit the columns.
func (g *generator) paramsFor(columns []column, rows int) *bound {
	b := &bound{}
	for _, c := range columns {
		b.Types = append(b.Types, g.paramType(c.kind))
	}
	for range rows {
		row := make([]*string, len(b.Types))
		for i, name := range b.Types {
			if values := paramValues[name]; len(values) > 0 && !g.chance(15) {
				row[i] = new(pick(g, values))
			}
		}
		b.Rows = append(b.Rows, row)
	}
	return b
}

var suits = map[string]string{
	"BOOLEAN": "bool", "TINYINT": "int8", "SMALLINT": "int16", "INTEGER": "int32", "BIGINT": "int64", "UTINYINT": "uint8", "USMALLINT": "uint16",
	"UINTEGER": "uint32", "UBIGINT": "uint64", "FLOAT": "float32", "DOUBLE": "float64", "DECIMAL(18,3)": "decimal(10,2)", "DECIMAL(38,10)": "decimal(38,10)",
	"VARCHAR": "utf8", "BLOB": "binary", "DATE": "date32", "TIME": "time64us", "TIMESTAMP": "timestamp_us", "TIMESTAMPTZ": "timestamp_us_utc",
	"ENUM('red','green','blue')": "dictionary<utf8>",
}

func (g *generator) paramType(k sqlKind) string {
	if name, ok := suits[k.name]; ok && g.chance(70) {
		return name
	}
	return pick(g, paramNames)
}

// boundCall is a statement with parameters.
func (g *generator) boundCall() {
	if len(g.calls) > 0 && g.chance(40) { // again, whatever has been changed since
		again := pick(g, g.calls)
		again.how = g.how()
		if again.verb == "query" && !g.inTx && g.chance(50) && strings.HasPrefix(again.sql, "SELECT ") {
			again.how = []string{asArgs}
		}
		g.add(again)
		return
	}
	verb, sql, with := g.withParams()
	g.calls = append(g.calls, step{verb: verb, sql: sql, with: with})
	for range 1 + g.IntN(3) {
		g.add(step{verb: verb, how: g.how(), sql: sql, with: with})
		if verb == "query" && strings.HasPrefix(sql, "SELECT ") && !g.inTx && g.chance(30) {
			g.add(step{verb: verb, how: []string{asArgs}, sql: sql, with: with})
		}
	}
}

func (g *generator) withParams() (verb, sql string, with *bound) {
	t := g.some()
	if t == nil || g.chance(15) {
		with := g.paramsFor([]column{{"v", pick(g, sqlKinds)}}, 1)
		if g.chance(50) { // any type will do
			with = &bound{Types: []string{pick(g, paramNames)}, Rows: [][]*string{{nil}}}
			if values := paramValues[with.Types[0]]; len(values) > 0 {
				with.Rows[0][0] = new(pick(g, values))
			}
		}
		return "query", "SELECT ? AS v", with
	}
	c := pick(g, t.columns)
	switch g.IntN(6) {
	case 0:
		return "query", fmt.Sprintf("SELECT * FROM %s WHERE %s = ?", t.name, c.name), g.paramsFor([]column{c}, 1)
	case 1:
		return "update", fmt.Sprintf("UPDATE %s SET %s = $1", t.name, c.name), g.paramsFor([]column{c}, 1)
	case 2:
		return "update", fmt.Sprintf("DELETE FROM %s WHERE %s = ?", t.name, c.name), g.paramsFor([]column{c}, 1+g.IntN(3))
	case 3:
		marks := strings.TrimSuffix(strings.Repeat("?, ", len(t.columns)), ", ")
		return "query", fmt.Sprintf("INSERT INTO %s VALUES (%s) RETURNING *", t.name, marks), g.paramsFor(t.columns, 1)
	default:
		marks := strings.TrimSuffix(strings.Repeat("?, ", len(t.columns)), ", ")
		n := len(t.columns)
		if g.chance(10) {
			n = 1 + g.IntN(n) // mostly too few
		}
		return "update", fmt.Sprintf("INSERT INTO %s VALUES (%s)", t.name, marks), g.paramsFor(t.columns[:n], 1+g.IntN(3))
	}
}

// related are types that take each other's values, as parameters of a kind that suits some of them.
var related = []struct{ kinds, params []string }{
	{[]string{"DATE", "TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMP_NS", "TIMESTAMP_S"}, []string{"date32", "timestamp_us", "timestamp_us_utc"}},
	{[]string{"INTEGER", "BIGINT", "DOUBLE", "VARCHAR", "DECIMAL(18,3)"}, []string{"int32", "int64", "float64", "utf8"}},
	{[]string{"VARCHAR", "BLOB", "UUID"}, []string{"utf8", "binary"}},
}

// retyped looks for a value in a column whose type is changed meanwhile, by the program or beside it.
func (g *generator) retyped() {
	of := pick(g, related)
	kind := func() sqlKind {
		name := pick(g, of.kinds)
		return sqlKinds[slices.IndexFunc(sqlKinds, func(k sqlKind) bool { return k.name == name })]
	}
	from, t := kind(), "t"+fmt.Sprint(g.IntN(3))
	g.update(fmt.Sprintf("CREATE OR REPLACE TABLE %s (c0 %s)", t, from.name))
	g.tables[t] = &table{name: t, columns: []column{{"c0", from}}}
	params := &bound{Types: []string{pick(g, of.params)}}
	params.Rows = [][]*string{{new(pick(g, paramValues[params.Types[0]]))}}
	g.add(step{verb: "update", sql: fmt.Sprintf("INSERT INTO %s VALUES (%s), (?)", t, from.literal(g)), with: params})
	find := step{verb: "query", how: []string{asArgs}, sql: fmt.Sprintf("SELECT %s FROM %s WHERE c0 %s ?", pick(g, []string{"*", "count(*) AS n"}), t, pick(g, []string{"=", "<=", "<>"})), with: params}
	for range 2 + g.IntN(3) {
		g.add(find)
		if to := kind(); g.chance(50) {
			change := step{verb: pick(g, []string{"beside", "update"}), sql: fmt.Sprintf("ALTER TABLE %s ALTER c0 TYPE %s", t, to.name)}
			if g.chance(30) { // and what was in it is gone
				change.sql = fmt.Sprintf("CREATE OR REPLACE TABLE %s (c0 %s)", t, to.name)
			}
			g.add(change)
			g.add(step{verb: "update", sql: fmt.Sprintf("INSERT INTO %s VALUES (?)", t), with: params})
		}
	}
	g.add(find)
}

// prepared prepares a statement, runs it some times and closes it.
func (g *generator) prepared() {
	verb, sql, with := g.withParams()
	name := fmt.Sprintf("p%d", g.IntN(2))
	g.add(step{verb: "prepare", name: name, sql: sql})
	for range 1 + g.IntN(3) {
		again := &bound{Types: with.Types, Rows: slices.Clone(with.Rows)}
		g.Shuffle(len(again.Rows), func(i, j int) { again.Rows[i], again.Rows[j] = again.Rows[j], again.Rows[i] })
		g.add(step{verb: "run-" + verb, name: name, with: again})
		if g.chance(30) {
			g.insert()
		}
	}
	g.add(step{verb: "close", name: name})
}
