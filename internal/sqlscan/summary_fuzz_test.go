package sqlscan

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A writer of literals writes one with inner in it, by the rules of a family of servers.
type writer func(rng *rand.Rand, inner string) string

func doubling(q string) writer {
	return func(_ *rand.Rand, inner string) string { return q + strings.ReplaceAll(inner, q, q+q) + q }
}

func backslashing(q string) writer {
	return func(rng *rand.Rand, inner string) string {
		inner = strings.ReplaceAll(inner, `\`, `\\`)
		if rng.IntN(2) == 0 {
			return q + strings.ReplaceAll(inner, q, `\`+q) + q
		}
		return q + strings.ReplaceAll(inner, q, q+q) + q
	}
}

// between writes what has no way to write its own end.
func between(from, to string) writer {
	return func(_ *rand.Rand, inner string) string { return from + strings.ReplaceAll(inner, to, "") + to }
}

func lineComment(mark string) writer {
	return func(_ *rand.Rand, inner string) string {
		return mark + strings.NewReplacer("\n", "", "\r", "").Replace(inner) + "\n"
	}
}

// nested writes a comment, in which others stand whole.
func nested(_ *rand.Rand, inner string) string {
	inner = strings.NewReplacer("/*", "", "*/", "").Replace(inner)
	return "/* a /* b */ " + inner + " /*c*/*/"
}

func raw(prefix, q string) writer {
	return func(_ *rand.Rand, inner string) string {
		return prefix + q + strings.ReplaceAll(strings.TrimRight(inner, `\`), q, "") + q
	}
}

var dialectsOfLiterals = map[string][]writer{
	"DuckDB, PostgreSQL": {
		doubling("'"), doubling(`"`), between("$$", "$$"), between("$a$", "$a$"), nested, lineComment("--"), lineComment("-- "),
		func(rng *rand.Rand, inner string) string { return "E" + backslashing("'")(rng, inner) },
		func(_ *rand.Rand, inner string) string { return "U&" + doubling("'")(nil, inner) },
	},
	"MySQL": {
		backslashing("'"), backslashing(`"`), doubling("`"), between("/*", "*/"), lineComment("-- "), lineComment("#"),
		func(rng *rand.Rand, inner string) string { return "_utf8mb4" + backslashing("'")(rng, inner) },
	},
	"SQLite, SQL Server": {doubling("'"), doubling(`"`), doubling("`"), between("[", "]"), between("/*", "*/"), lineComment("--")},
	"BigQuery": {
		backslashing("'"), backslashing(`"`), backslashing("`"), between("'''", "'''"), between(`"""`, `"""`), raw("r", "'"), raw("R", `"`), raw("br", "'"),
		between("/*", "*/"), lineComment("#"), lineComment("-- "),
	},
	"ClickHouse": {backslashing("'"), backslashing(`"`), backslashing("`"), between("$h$", "$h$"), between("/*", "*/"), lineComment("# "), lineComment("--")},
	"Snowflake":  {backslashing("'"), doubling(`"`), between("$$", "$$"), between("/*", "*/"), lineComment("//"), lineComment("--")},
	"Spark":      {backslashing("'"), backslashing(`"`), doubling("`"), raw("r", "'"), nested, lineComment("--")},
	"Oracle":     {doubling("'"), between("q'[", "]'"), between("nq'{", "}'"), between("Q'|", "|'"), doubling(`"`), lineComment("--")},
}

// noise is what stands in literals and tends to be cut otherwise.
var noise = []string{
	"'", `"`, "`", `\`, "--", "-- ", "/*", "*/", "#", "//", "$$", "$a$", "[", "]", "(", ")", ";", "\n", "\r", "'''", `"""`, "]'", "q'[", " ", "x", "7",
	" FROM hunter2 ", " INTO hunter2 ", "; UPDATE hunter2 ", " JOIN a.hunter2", "\nTABLE hunter2\n",
}

var plain = []string{
	"SELECT ", " FROM t ", " JOIN u ON ", ", ", " WHERE a = ", "; ", "INSERT INTO t VALUES (", ")", " UPDATE t SET a = ", " + ", " 1 ", " a", "(", " = ", " AS b ",
	" FROM ", " INTO ", " JOIN ", " TABLE ", "COPY t FROM ", "ATTACH ", "CREATE SECRET s (KEY_ID ", "SET password = ", " trim(BOTH ",
}

// literalsIn is a text by the rules of a dialect that has hunter2 in its literals,
// quoted names and comments only.
func literalsIn(rng *rand.Rand, writers []writer) string {
	var sql strings.Builder
	for range 1 + rng.IntN(8) {
		if rng.IntN(2) == 0 {
			sql.WriteString(plain[rng.IntN(len(plain))])
			continue
		}
		var inner strings.Builder
		for range 1 + rng.IntN(6) {
			inner.WriteString(noise[rng.IntN(len(noise))])
		}
		sql.WriteString(" ") // a$$ is a name
		sql.WriteString(writers[rng.IntN(len(writers))](rng, inner.String()))
		sql.WriteString(" ")
	}
	return sql.String()
}

func FuzzASummaryHoldsNoLiteralOfAnyDialect(f *testing.F) {
	for i := range 64 {
		f.Add(uint64(i))
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 3))                               //nolint:gosec // no secret
		for _, name := range slices.Sorted(maps.Keys(dialectsOfLiterals)) { // in one order, so that the seed tells the texts
			for range 100 {
				sql := literalsIn(rng, dialectsOfLiterals[name])
				summary := Summary(sql)
				require.NotContains(t, strings.ToLower(summary), "hunter2", "%s: %q", name, sql)
				require.LessOrEqual(t, len(summary), maxSummary+50, "%q", sql)
			}
		}
	})
}
