package adbcconn

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLikeMatchesAsSQLDoes(t *testing.T) {
	for _, test := range []struct {
		pattern, name string
		want          bool
	}{
		{"", "", true}, {"", "a", false}, {"%", "", true}, {"%", "abc", true}, {"a%", "abc", true}, {"%c", "abc", true},
		{"%b%", "abc", true}, {"a_c", "abc", true}, {"a_c", "ac", false}, {"a%b%c", "aXbYc", true}, {"a%b%c", "aXcYb", false},
		{"abc", "abcd", false}, {"%%", "x", true}, {"_%", "", false},
		{"_", "é", true}, {"f_n", "fün", true}, {"__", "é", false}, {"_", "\xff", true},
		{`a\_b`, "a_b", true}, {`a\_b`, "aXb", false}, {`100\%`, "100%", true}, {`100\%`, "1000", false}, {`a\\b`, `a\b`, true},
		{`a\b`, `a\b`, true}, {`a\`, `a\`, true},
	} {
		require.Equal(t, test.want, Like(test.pattern, test.name), "%q like %q", test.name, test.pattern)
	}
}

func TestLikeMatchesAsARegularExpression(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	text := func(alphabet string) string {
		runes := []rune(alphabet)
		var b strings.Builder
		for range random.IntN(7) {
			b.WriteRune(runes[random.IntN(len(runes))])
		}
		return b.String()
	}
	matches := 0
	for range 20_000 {
		pattern, name := text(`aé_%\`), text(`aé_%\`)
		want := regexp.MustCompile("(?s)^" + expression(pattern) + "$").MatchString(name)
		require.Equal(t, want, Like(pattern, name), "%q like %q", name, pattern)
		if want {
			matches++
		}
	}
	require.Greater(t, matches, 500, "the generator must hit")
}

// expression is the regular expression of a LIKE pattern.
func expression(pattern string) string {
	var b strings.Builder
	for len(pattern) > 0 {
		switch {
		case strings.HasPrefix(pattern, `\_`), strings.HasPrefix(pattern, `\%`), strings.HasPrefix(pattern, `\\`):
			b.WriteString(regexp.QuoteMeta(pattern[1:2]))
			pattern = pattern[2:]
			continue
		case pattern[0] == '%':
			b.WriteString(".*")
		case pattern[0] == '_':
			b.WriteString(".")
		default:
			r := []rune(pattern)[0]
			b.WriteString(regexp.QuoteMeta(string(r)))
			pattern = pattern[len(string(r)):]
			continue
		}
		pattern = pattern[1:]
	}
	return b.String()
}
