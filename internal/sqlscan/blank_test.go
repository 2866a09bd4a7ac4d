package sqlscan

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A character that is white space to one server stands in words to another, and
// so in the tag of a dollar quote: what it quotes is a change to one of them.
func TestBlanksBeyondASCII(t *testing.T) {
	for _, blank := range []string{"\u0085", "\u00a0", "\u1680", "\u2003", "\u200b", "\u2028", "\u2029", "\u202f", "\u3000", "\ufeff"} {
		tag := "$a" + blank + "b$"
		require.False(t, Parse("SELECT "+tag+" ' "+tag+"; DELETE FROM t; --'").ReadOnly(), "%q", blank)
		for sql, reads := range map[string]bool{"SELECT" + blank + "1": true, blank + "SELECT 1": true, "DELETE" + blank + "FROM t": false} {
			require.Equal(t, reads, Parse(sql).ReadOnly(), "%q", sql)
			require.Empty(t, Parse(sql).Effects(), "%q", sql)
		}
	}
	// A server may take for one word what another takes for two.
	require.NotEmpty(t, Parse("SELECT 1 FROM set_config\u2028('a', 'b', false)").Effects())
}

func TestWhichBlanksAServerHas(t *testing.T) {
	for _, tc := range []struct {
		r                 rune
		all, duckdb, none bool
	}{
		{' ', true, true, true}, {'\n', true, true, true}, {'a', false, false, false}, {'\u20ac', false, false, false},
		{'\u0085', true, false, false}, {'\u1680', true, false, false}, {'\u2028', true, false, false}, {'\u2029', true, false, false},
		{'\u00a0', true, true, false}, {'\u2000', true, true, false}, {'\u200b', true, true, false}, {'\u200d', true, true, false}, {'\u200e', false, false, false}, {'\u2060', true, true, false}, {'\u3000', true, true, false}, {'\ufeff', true, true, false},
	} {
		for b, want := range map[whitespace]bool{whitespaceAll: tc.all, whitespaceDuckDB: tc.duckdb, whitespaceASCII: tc.none} {
			require.Equal(t, want, b.isSpace(tc.r), "%d: %q", b, tc.r)
			require.Equal(t, !want, b.isWordRune(tc.r) || tc.r <= ' ' && !want, "%d: %q", b, tc.r)
		}
	}
}
