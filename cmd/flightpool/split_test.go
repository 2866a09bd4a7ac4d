package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStatementsEndAtSemicolonsOutsideOfQuotes(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"SELECT 1; SELECT 2;", []string{"SELECT 1", "SELECT 2"}},
		{"SELECT ';', \"a;b\", `c;d`; x", []string{"SELECT ';', \"a;b\", `c;d`", "x"}},
		{`SELECT E'it\'s; here', e'\\'; SELECT 'a\'; SELECT Ae'\';`, []string{`SELECT E'it\'s; here', e'\\'`, `SELECT 'a\'`, `SELECT Ae'\'`}},
		{"SELECT E'''\\'; ''', E'a\\\n\\';'; SELECT E'';", []string{"SELECT E'''\\'; ''', E'a\\\n\\';'", "SELECT E''"}},
		{"SELECT 'it''s; here';", []string{"SELECT 'it''s; here'"}},
		{"-- one; two\nSELECT 1 -- three;\n;;", []string{"-- one; two\nSELECT 1 -- three;"}},
		{"SELECT 1; -- note\rDELETE FROM t;\r", []string{"SELECT 1", "-- note\rDELETE FROM t"}},
		{"SELECT 1; -- note\r\nDELETE FROM t -- a; b\r\n;\r\n", []string{"SELECT 1", "-- note\r\nDELETE FROM t -- a; b"}},
		{"/* a; /* b; */ c; */ SELECT 1;", []string{"/* a; /* b; */ c; */ SELECT 1"}},
		{"SELECT $$a;b$$, $x$ $$;$x$ ;", []string{"SELECT $$a;b$$, $x$ $$;$x$"}},
		{"SELECT a$b$c; SELECT $1;", []string{"SELECT a$b$c", "SELECT $1"}},
		{" ; ; -- nothing\n", nil},
		{"SELECT\n'a\n;\nb';", []string{"SELECT\n'a\n;\nb'"}},
	} {
		var s splitter
		var got []string
		for line := range strings.SplitAfterSeq(c.text, "\n") {
			got = append(got, s.feed(line)...)
		}
		if rest := s.rest(); rest != "" {
			got = append(got, rest)
		}
		require.Equal(t, c.want, got, c.text)
	}
}

func TestWhatMayChangeSomething(t *testing.T) {
	for sql, may := range map[string]bool{
		"SELECT 'INSERT' FROM t":                             true, // the careful answer
		"/* INSERT */ (FROM t)":                              false,
		"EXPLAIN ANALYZE DELETE FROM t":                      true,
		"SHOW CREATE TABLE t":                                false,
		"SELECT a ->> 'set', a->>b FROM t":                   false,
		"SHOW TABLES ->> SELECT * FROM $1":                   false,
		"SHOW TABLES ->> CREATE TABLE t AS SELECT * FROM $1": true,
		"SHOW TABLES ->>\ndrop TABLE t ->> SHOW TABLES":      true,
		"SHOW TABLES ->> /* x */ ALTER TABLE t ADD b INT":    true,
		"SHOW TABLES ->> SET a = 1":                          true,
		"SHOW TABLES ->> COMMIT":                             true,
		"SAVEPOINT a":                                        true,
		"RELEASE a":                                          true,
		"COMMIT AND CHAIN":                                   true,
		"CALL p()":                                           true,
		"":                                                   true,
	} {
		require.Equal(t, may, mayChange(sql), sql)
	}
}
