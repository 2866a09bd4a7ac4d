//go:build duckdb_arrow

package conformance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// generator makes random programs. It keeps in mind which tables there should
// be, so that most statements succeed; some are wrong on purpose.
type generator struct {
	*rand.Rand
	tables map[string]*table
	temp   bool // there is a temporary table: only the session sees it
	inTx   bool
	calls  []step // with parameters
	p      program
}

type table struct {
	name    string
	columns []column
	temp    bool
}

type column struct {
	name string
	kind sqlKind
}

// sqlKind is a type of DuckDB with literals of it.
type sqlKind struct {
	name     string
	literals []string
	ordered  bool // < is defined and aggregates take it
	number   bool
}

var sqlKinds = []sqlKind{
	{"BOOLEAN", []string{"true", "false"}, true, false},
	{"TINYINT", []string{"-128", "0", "127", "7"}, true, true},
	{"SMALLINT", []string{"-32768", "0", "32767", "12"}, true, true},
	{"INTEGER", []string{"-2147483648", "0", "1", "2", "3", "2147483647"}, true, true},
	{"BIGINT", []string{"-9223372036854775808", "0", "42", "9223372036854775807"}, true, true},
	{"HUGEINT", []string{"0", "-170141183460469231731687303715884105728", "170141183460469231731687303715884105727"}, true, true},
	{"UTINYINT", []string{"0", "255"}, true, true},
	{"USMALLINT", []string{"0", "65535"}, true, true},
	{"UINTEGER", []string{"0", "4294967295"}, true, true},
	{"UBIGINT", []string{"0", "18446744073709551615"}, true, true},
	{"UHUGEINT", []string{"0", "340282366920938463463374607431768211455"}, true, true},
	{"FLOAT", []string{"0.1", "'-0.0'", "3.4e38", "'inf'"}, true, true},
	{"DOUBLE", []string{"0.1", "'nan'", "'-inf'", "1e308", "5e-324", "-0.5"}, true, true},
	{"DECIMAL(4,1)", []string{"-999.9", "0.0", "0.1", "12.5"}, true, true},
	{"DECIMAL(18,3)", []string{"0.001", "-123456789012345.678"}, true, true},
	{"DECIMAL(38,10)", []string{"0.0000000001", "9999999999999999999999999999.9999999999"}, true, true},
	{"VARCHAR", []string{"''", "'a'", "'it''s'", "'ünïcödé 漢字 🦆'", "'; DROP TABLE t0; --'", "repeat('long ', 1000)", "'NULL'", "chr(10)"}, true, false},
	{"BLOB", []string{`'\x00\xFF'`, "''", "'abc'"}, true, false},
	{"BIT", []string{"'1'", "'010101010'"}, true, false},
	{"DATE", []string{"'1970-01-01'", "'0001-01-01'", "'9999-12-31'", "'2024-02-29'"}, true, false},
	{"TIME", []string{"'00:00:00'", "'23:59:59.999999'"}, true, false},
	{"TIMETZ", []string{"'12:00:00+00'", "'01:02:03+05'"}, true, false},
	{"TIMESTAMP", []string{"'1970-01-01 00:00:00'", "'2024-02-29 12:34:56.789012'", "'1500-01-01 00:00:00'"}, true, false},
	{"TIMESTAMP_S", []string{"'2024-02-29 12:34:56'"}, true, false},
	{"TIMESTAMP_MS", []string{"'2024-02-29 12:34:56.789'"}, true, false},
	{"TIMESTAMP_NS", []string{"'2024-02-29 12:34:56.789012345'"}, true, false},
	{"TIMESTAMPTZ", []string{"'2024-02-29 12:34:56+00'", "'1969-12-31 23:59:59.999999+00'"}, true, false},
	{"INTERVAL", []string{"'1 month 2 days'", "'-3 hours'", "'0 days'"}, true, false},
	{"UUID", []string{"'00000000-0000-0000-0000-000000000000'", "'f81d4fae-7dec-11d0-a765-00a0c91e6bf6'"}, true, false},
	{"ENUM('red','green','blue')", []string{"'red'", "'blue'"}, true, false},
	{"INTEGER[]", []string{"[]", "[1, NULL, 3]", "[NULL]"}, false, false},
	{"VARCHAR[]", []string{"['a', '']", "[]"}, false, false},
	{"INTEGER[][]", []string{"[[1], [], NULL]"}, false, false},
	{"INTEGER[3]", []string{"[1, 2, 3]", "[NULL, 0, -1]"}, false, false},
	{"STRUCT(a INTEGER, b VARCHAR)", []string{"{'a': 1, 'b': 'x'}", "{'a': NULL, 'b': NULL}"}, false, false},
	{"STRUCT(s STRUCT(x DOUBLE), l INTEGER[])", []string{"{'s': {'x': 1.5}, 'l': [1, 2]}"}, false, false},
	{"MAP(VARCHAR, INTEGER)", []string{"MAP {'k': 1, 'l': NULL}", "MAP {}"}, false, false},
	{"UNION(n INTEGER, s VARCHAR)", []string{"union_value(n := 1)", "union_value(s := 'x')"}, false, false},
}

func pick[T any](g *generator, list []T) T { return list[g.IntN(len(list))] }

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func (k sqlKind) literal(g *generator) string {
	if g.chance(15) {
		return "NULL"
	}
	return "(" + pick(g, k.literals) + ")::" + k.name
}

// generate makes the program of a seed.
func generate(seed uint64) program {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0)), tables: map[string]*table{}}
	g.create()
	for range 4 + g.IntN(14) {
		g.next()
	}
	return g.p
}

func (g *generator) next() {
	switch n := g.IntN(100); {
	case n < 8:
		g.create()
	case n < 26:
		g.insert()
	case n < 30:
		g.ingest()
	case n < 36:
		g.change()
	case n < 62:
		g.read()
	case n < 74:
		g.boundCall()
	case n < 77 && !g.inTx:
		g.retyped()
	case n < 80:
		g.prepared()
	case n < 86:
		g.schema()
	case n < 94:
		g.transaction()
	case n < 98:
		g.mistake()
	default:
		g.large()
	}
}

func (g *generator) add(s step) { g.p = append(g.p, s) }

// how chooses by which of the pool's calls a statement goes.
func (g *generator) how(flags ...string) []string {
	if !g.inTx && !g.temp && g.chance(25) {
		flags = append(flags, stateless)
	}
	if g.chance(25) {
		flags = append(flags, execute)
	}
	return flags
}

func (g *generator) update(sql string) { g.add(step{verb: "update", how: g.how(), sql: sql}) }

// some is one of the tables, or nil.
func (g *generator) some() *table {
	for _, name := range []string{pick(g, tableNames), "t0", "t1", "t2", "tmp"} {
		if t := g.tables[name]; t != nil {
			return t
		}
	}
	return nil
}

var tableNames = []string{"t0", "t1", "t2", "tmp"}

func (g *generator) create() {
	t := &table{name: pick(g, tableNames)}
	for i := range 1 + g.IntN(5) {
		t.columns = append(t.columns, column{fmt.Sprintf("c%d", i), pick(g, sqlKinds)})
	}
	if g.chance(40) {
		t.columns[0].kind = sqlKinds[3] // INTEGER, so that there are keys
	}
	verb := pick(g, []string{"CREATE TABLE", "CREATE OR REPLACE TABLE", "CREATE TABLE IF NOT EXISTS"})
	if t.name == "tmp" {
		verb = pick(g, []string{"CREATE TEMP TABLE", "CREATE OR REPLACE TEMPORARY TABLE"})
		t.temp, g.temp = true, true
	}
	var defs []string
	for i, c := range t.columns {
		def := c.name + " " + c.kind.name
		switch {
		case i == 0 && c.kind.ordered && g.chance(30):
			def += " PRIMARY KEY"
		case g.chance(10):
			def += " NOT NULL"
		case g.chance(10):
			def += " DEFAULT " + c.kind.literal(g)
		case c.kind.number && g.chance(10):
			def += " CHECK (" + c.name + " >= 0)"
		}
		defs = append(defs, def)
	}
	g.update(fmt.Sprintf("%s %s (%s)", verb, t.name, strings.Join(defs, ", ")))
	if g.tables[t.name] == nil || strings.Contains(verb, "REPLACE") {
		g.tables[t.name] = t
	}
}

func (g *generator) row(t *table) string {
	values := make([]string, len(t.columns))
	for i, c := range t.columns {
		values[i] = c.kind.literal(g)
	}
	return "(" + strings.Join(values, ", ") + ")"
}

func (g *generator) insert() {
	t := g.some()
	if t == nil {
		g.mistake()
		return
	}
	rows := make([]string, 1+g.IntN(4))
	for i := range rows {
		rows[i] = g.row(t)
	}
	conflict := pick(g, []string{"", "", "", "OR IGNORE ", "OR REPLACE "})
	sql := "INSERT " + conflict + "INTO " + t.name + " VALUES " + strings.Join(rows, ", ")
	if g.chance(10) {
		sql = fmt.Sprintf("INSERT INTO %s SELECT * FROM %s", t.name, t.name)
	}
	// Where two rows of one statement have the same key, what DuckDB 1.5 returns
	// for OR REPLACE differs from run to run, with values that nobody inserted.
	if conflict == "" && g.chance(15) {
		g.add(step{verb: "query", how: g.how(), sql: sql + " RETURNING *"})
		return
	}
	g.update(sql)
}

// where is a condition on one of the columns, "" sometimes.
func (g *generator) where(t *table) string {
	c := pick(g, t.columns)
	switch g.IntN(5) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf(" WHERE %s IS %sNULL", c.name, pick(g, []string{"", "NOT "}))
	case 2:
		if c.kind.ordered {
			return fmt.Sprintf(" WHERE %s %s %s", c.name, pick(g, []string{"<", "<=", ">", "<>"}), c.kind.literal(g))
		}
	case 3:
		return fmt.Sprintf(" WHERE %s IN (%s, %s)", c.name, c.kind.literal(g), c.kind.literal(g))
	}
	return fmt.Sprintf(" WHERE %s IS NOT DISTINCT FROM %s", c.name, c.kind.literal(g))
}

func (g *generator) change() {
	t := g.some()
	if t == nil {
		g.mistake()
		return
	}
	c := pick(g, t.columns)
	sql := fmt.Sprintf("UPDATE %s SET %s = %s%s", t.name, c.name, c.kind.literal(g), g.where(t))
	switch g.IntN(4) {
	case 0:
		sql = "DELETE FROM " + t.name + g.where(t)
	case 1:
		sql = "TRUNCATE " + t.name
	}
	if g.chance(20) && !strings.HasPrefix(sql, "TRUNCATE") {
		g.add(step{verb: "query", how: g.how(), sql: sql + " RETURNING *"})
		return
	}
	g.update(sql)
}

func (g *generator) read() {
	t := g.some()
	if t == nil {
		g.add(step{verb: "query", how: g.how(), sql: "SELECT " + pick(g, sqlKinds).literal(g) + " AS v"})
		return
	}
	sql, flags := g.selection(t)
	g.add(step{verb: "query", how: g.how(flags...), sql: sql})
}

func (g *generator) selection(t *table) (sql string, flags []string) {
	c := pick(g, t.columns)
	switch g.IntN(13) {
	case 0:
		return "SELECT count(*) AS n, count(" + c.name + ") AS c FROM " + t.name + g.where(t), nil
	case 1:
		if c.kind.ordered {
			return fmt.Sprintf("SELECT min(%s) AS a, max(%s) AS b FROM %s%s", c.name, c.name, t.name, g.where(t)), nil
		}
	case 2:
		if c.kind.number && !strings.HasSuffix(c.kind.name, "HUGEINT") { // whether their sum overflows is a matter of the order
			return fmt.Sprintf("SELECT sum(%s) AS s, avg(%s) AS m FROM %s", c.name, c.name, t.name), nil
		}
	case 3:
		return fmt.Sprintf("SELECT CAST(%s AS VARCHAR) AS v FROM %s ORDER BY ALL", c.name, t.name), []string{ordered}
	case 4:
		return fmt.Sprintf("SELECT CAST(%s AS %s) AS v FROM %s", c.name, pick(g, sqlKinds).name, t.name), nil // often wrong
	case 5:
		return fmt.Sprintf("SELECT %s, count(*) AS n FROM %s GROUP BY %s", c.name, t.name, c.name), nil
	case 6:
		return fmt.Sprintf("WITH w AS (SELECT * FROM %s%s) SELECT a.%s, b.* FROM w a, w b LIMIT 50", t.name, g.where(t), c.name), nil
	case 7:
		return fmt.Sprintf("SELECT %s FROM %s UNION ALL SELECT %s FROM %s", c.name, t.name, c.name, t.name), nil
	case 8:
		return "DESCRIBE " + t.name, []string{ordered}
	case 9:
		return "SELECT * FROM " + t.name + " WHERE false", nil
	case 10:
		if c.kind.ordered {
			return fmt.Sprintf("SELECT *, row_number() OVER (ORDER BY %s) AS r FROM %s ORDER BY %s, ALL", c.name, t.name, c.name), nil
		}
	case 11:
		return "FROM " + t.name + " SELECT DISTINCT " + c.name, nil
	}
	return "SELECT * FROM " + t.name + g.where(t), nil
}

// schema changes what there is.
func (g *generator) schema() {
	t := g.some()
	if t == nil {
		g.create()
		return
	}
	c := pick(g, t.columns)
	switch g.IntN(11) {
	case 9, 10: // beside statements that were prepared for the type before
		to := pick(g, sqlKinds)
		sql := fmt.Sprintf("ALTER TABLE %s ALTER %s TYPE %s", t.name, c.name, to.name)
		if !g.inTx && !t.temp && g.chance(50) {
			g.add(step{verb: "beside", sql: sql})
		} else {
			g.update(sql)
		}
		if g.chance(50) { // it may fail
			t.columns = slices.Clone(t.columns)
			t.columns[slices.IndexFunc(t.columns, func(other column) bool { return other.name == c.name })].kind = to
		}
	case 0:
		g.update("DROP TABLE " + pick(g, []string{"", "IF EXISTS "}) + t.name)
		delete(g.tables, t.name)
	case 1:
		added := column{fmt.Sprintf("x%d", g.IntN(3)), pick(g, sqlKinds)}
		g.update(fmt.Sprintf("ALTER TABLE %s ADD COLUMN %s %s", t.name, added.name, added.kind.name))
		t.columns = append(t.columns, added)
	case 2:
		g.update(fmt.Sprintf("ALTER TABLE %s RENAME %s TO r%d", t.name, c.name, g.IntN(3)))
	case 3:
		g.update(fmt.Sprintf("CREATE %sVIEW v%d AS SELECT %s FROM %s", pick(g, []string{"", "OR REPLACE "}), g.IntN(2), c.name, t.name))
	case 4:
		g.add(step{verb: "query", how: g.how(), sql: fmt.Sprintf("SELECT * FROM v%d", g.IntN(2))})
	case 5:
		g.update(fmt.Sprintf("CREATE INDEX i%d ON %s (%s)", g.IntN(2), t.name, c.name))
	case 6:
		g.update("CREATE SEQUENCE IF NOT EXISTS q0")
		g.add(step{verb: "query", how: g.how(), sql: "SELECT nextval('q0') AS n"})
	case 7:
		g.update("CREATE TYPE e0 AS ENUM ('x', 'y')")
		g.add(step{verb: "query", how: g.how(), sql: "SELECT 'x'::e0 AS v"})
	case 8:
		g.update(fmt.Sprintf("CREATE OR REPLACE TABLE t2 AS SELECT * FROM %s%s", t.name, g.where(t)))
		if t.name != "t2" {
			g.tables["t2"] = &table{name: "t2", columns: t.columns}
		}
	}
}

func (g *generator) transaction() {
	switch {
	case !g.inTx:
		g.add(step{verb: "begin"})
		g.inTx = true
	case g.chance(60):
		g.add(step{verb: "commit"})
		g.inTx = false
	default:
		g.add(step{verb: "rollback"})
		g.inTx = false
	}
}

// mistake is a statement that fails, or text that is easily misread.
func (g *generator) mistake() {
	sql := pick(g, []string{
		"SELEC 1", "SELECT 1 +", "SELECT * FROM nowhere", "SELECT nothing", "SELECT 1/0 AS v", "SELECT 'x'::INTEGER AS v",
		"SELECT error('on purpose')", "INSERT INTO nowhere VALUES (1)", "UPDATE t0 SET nothing = 1", "DELETE FROM nowhere",
		"CREATE TABLE t0 (", "DROP TABLE nowhere", "SELECT ?", "INSERT INTO t0 VALUES ($1, $2)", "", ";", "-- nothing", "/* nothing */ SELECT 1 AS v",
		"SELECT 1 AS a; SELECT 2 AS b", "SELECT 1 AS v;", "(SELECT 1 AS v)", "VALUES (1, 'a'), (2, NULL)", "SELECT sum(i) FROM range(10) t(i)",
		"SELECT CASE WHEN i = 3000 THEN error('late') ELSE i END AS v FROM range(5000) t(i)", "SELECT 'a' AS same, 'b' AS same", `SELECT 1 AS "the name"`,
		"EXPLAIN SELECT 1", "SHOW TABLES", "PRAGMA table_info('t0')", "SUMMARIZE SELECT 1 AS v", "SELECT NULL AS v", "SELECT [] AS v", "SELECT {'a': NULL} AS v",
	})
	if g.chance(30) {
		var how []string // not by Execute, which would have rows
		if !g.inTx && !g.temp && g.chance(25) {
			how = []string{stateless}
		}
		g.add(step{verb: "update", how: how, sql: sql})
		return
	}
	g.add(step{verb: "query", how: g.how(), sql: sql})
}

func (g *generator) large() {
	n := 1 + g.IntN(20000)>>g.IntN(8) // mostly few batches
	g.add(step{verb: "query", how: g.how(ordered), sql: pick(g, []string{
		fmt.Sprintf("SELECT i, i %% 7 AS m, 'row ' || i AS s, CASE WHEN i %% 5 = 0 THEN NULL ELSE i / 3 END AS d FROM range(%d) t(i) ORDER BY i", n),
		fmt.Sprintf("SELECT [i, i + 1] AS l, {'a': i, 'b': i::VARCHAR} AS s FROM range(%d) t(i) ORDER BY i DESC", n),
		fmt.Sprintf("SELECT repeat('x', (i %% 100)::INTEGER) AS s, (i %% 3)::DECIMAL(18,3) AS d FROM range(%d) t(i) ORDER BY i", n),
	})})
}
