package sqlscan

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestASummaryNamesWhatAStatementTouches(t *testing.T) {
	for sql, summary := range map[string]string{
		"":            "",
		"-- nothing":  "",
		"SELECT 1":    "SELECT",
		"select 'x';": "SELECT",
		"SELECT * FROM flights f JOIN main.airports a ON a.id = f.origin WHERE name = 'BER'": "SELECT flights main.airports",
		"SELECT * FROM a, (SELECT * FROM b) x JOIN a ON true":                                "SELECT a b",
		"WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x":                                 "INSERT t x",
		"INSERT INTO TABLE t VALUES (1)":                                                     "INSERT t",
		"UPDATE account SET balance = 7":                                                     "UPDATE account",
		"DELETE FROM only_here WHERE a = 1":                                                  "DELETE only_here",
		"CREATE TABLE IF NOT EXISTS t (a INT)":                                               "CREATE t",
		"DROP TABLE t; SELECT 1":                                                             "DROP t; SELECT",
		"SET password = hunter2":                                                             "SET",
		"hunter2 is no verb":                                                                 "?",
		"(SELECT 1)":                                                                         "SELECT",
		"SELECT * FROM":                                                                      "SELECT",
		"SELECT a/b, 'x', 1'y' FROM t":                                                       "SELECT t",
		"SELECT * FROM t WHERE a IS DISTINCT FROM b":                                         "SELECT t",
		"SELECT * FROM t FORMAT JSON":                                                        "SELECT t",
		"INSERT INTO t FORMAT CSV x":                                                         "INSERT",
		"SELECT * FROM LATERAL f(1), t JOIN LATERAL (VALUES (1)) ON true":                    "SELECT",
		"SELECT * FROM a.\"b\"":                                                              "SELECT a",
		"SELECT * FROM t WHERE a = 'x":                                                       "SELECT",
		"SELECT * FROM t.":                                                                   "SELECT t",
	} {
		require.Equal(t, summary, Summary(sql), sql)
	}
}

// Where the literal of one dialect is cut by another, or an identifier may be one.
func TestASummaryHoldsNoLiteral(t *testing.T) {
	for _, sql := range []string{
		"SELECT 'hunter2'",
		"SELECT 'FROM hunter2'",
		"SELECT * FROM 'hunter2'",
		`SELECT * FROM "hunter2"`,
		`SELECT trim(BOTH FROM "hunter2")`,
		"SELECT * FROM `hunter2`",
		"SELECT $$ FROM hunter2 $$",
		"SELECT $a$ FROM hunter2 $a$",
		`SELECT 'it\'s FROM hunter2'`,
		`SELECT "it\" FROM hunter2"`,
		"SELECT 'FROM hunter2",
		"SELECT /* FROM hunter2",
		"SELECT 1 -- FROM hunter2",
		"SELECT 1 # FROM hunter2",
		"SELECT '''it's FROM hunter2'''",
		`SELECT """he said "FROM hunter2" twice"""`,
		"SELECT * FROM hunter2'x'",
		`SELECT * FROM hunter2"x"`,
		"CREATE USER bob PASSWORD hunter2",
		"hunter2",
		"ATTACH 'hunter2'",
		"SELECT 1 //*x*/ FROM hunter2",
		"SELECT ['FROM hunter2', \"]\" FROM hunter2",
	} {
		require.NotContains(t, Summary(sql), "hunter2", sql)
	}
}

func TestASummaryIsShort(t *testing.T) {
	long := strings.Repeat("x", 500)
	for _, sql := range []string{
		"SELECT * FROM " + long,
		strings.Repeat("SELECT * FROM a; ", 1000),
		"SELECT * FROM a" + strings.Repeat(" JOIN b", 100) + " JOIN " + long,
	} {
		require.LessOrEqual(t, len(Summary(sql)), maxSummary+50, sql[:40])
	}
}

func TestWhatIsLeftOutOfASummaryShows(t *testing.T) {
	fits := strings.Repeat("x", maxSummary-len("SELECT"))
	require.Equal(t, "SELECT "+fits, Summary("SELECT * FROM "+fits))
	require.Equal(t, "SELECT …", Summary("SELECT * FROM "+fits+"x"))
	require.True(t, strings.HasSuffix(Summary(strings.Repeat("SELECT * FROM a; ", 1000)), "; …"))
	begun := "SELECT * FROM a JOIN "
	require.Equal(t, "SELECT a", Summary(begun+strings.Repeat(" ", maxSummarized-len(begun)-3)+"tables"), "no name is cut in two")
}

// One attribute that is not UTF-8 has an exporter refuse all of an export.
func TestASummaryIsUTF8(t *testing.T) {
	for sql, summary := range map[string]string{
		"SELECT * FROM caf\xe9":            "SELECT",
		"SELECT * FROM a\xff; DELETE b":    "SELECT; …",
		"\xff\xfe":                         "?",
		"SELECT * FROM café":               "SELECT café",
		"SELECT 1 /*" + "\xc3" + "*/ FROM": "SELECT",
	} {
		require.Equal(t, summary, Summary(sql), "%q", sql)
	}
	for at := range 8 { // where a long text is cut
		sql := "SELECT * FROM t WHERE a = 1 " + strings.Repeat(" ", maxSummarized-40+at) + "日本語日本語日本語日本語"
		require.Equal(t, "SELECT t", Summary(sql))
		require.True(t, utf8.ValidString(Summary("SELECT * FROM "+sql[28:])))
	}
}

func TestWordsInLowerCaseTakeOneAllocationForAll(t *testing.T) {
	sql := "select origin, count(*) from flights where day = 7 and carrier = ? group by origin"
	lower, upper := testing.AllocsPerRun(100, func() { Summary(sql) }), testing.AllocsPerRun(100, func() { Summary(strings.ToUpper(sql)) })
	require.LessOrEqual(t, lower, upper+1) // upper has that of ToUpper
	long := strings.Repeat("select Straße, grün, "+strings.Repeat("x", 100)+" from t; ", 100)
	l := lexer{d: standardDialect, sql: long}
	for _, tok := range l.scan() {
		require.Equal(t, strings.ToUpper(long[tok.start:tok.end]), tok.text)
	}
}
