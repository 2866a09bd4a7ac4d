package sqlscan

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheNumbersOfParametersStandInTheOrderOfTheText(t *testing.T) {
	for sql, want := range map[string][]int{
		"UPDATE t SET a = $2 WHERE b=$1":                {2, 1},
		"UPDATE t SET a = ?2 WHERE b = ?1 + ?1":         {2, 1, 1},
		"UPDATE t SET a = ? WHERE b = ?":                nil,
		"SELECT '$2', \"$3\", $$ $4 $$ /* $5 */":        nil,
		"SELECT $1::INT -- $2":                          {1},
		"SELECT $name, $ 1, a$1, $99999999999999999999": nil,
		"UPDATE t SET a=5 WHERE b=$1":                   {1},
		"":                                              nil,
		"$":                                             nil,
	} {
		var numbers []int
		for _, p := range NumberedParams(sql) {
			numbers = append(numbers, p.Number)
		}
		require.Equal(t, want, numbers, sql)
	}
}

func TestTheColumnOfAParameterStandsBesideIt(t *testing.T) {
	for _, c := range []struct {
		sql, column string
		beside      bool
	}{
		{"UPDATE t SET due = $1", "Due", true}, {"SELECT 1 FROM t WHERE t.due>=?1", "due", true}, {"WHERE id IN ($2, $3::INT, $1)", "id", false}, {"WHERE id IN ($2, $3, $1)", "id", true},
		{`WHERE o."due ""x""" BETWEEN $2 AND CAST($1 AS DATE)`, `due "x"`, true}, {"SET n = n + $1", "n", true}, {"WHERE $1 <= o.due", "due", true}, {"WHERE $1 <= o.due", "o", false},
		{"WHERE due = 'x' || $1", "due", false}, {"WHERE trim($1) = due", "due", false}, {"WHERE f(due) = $1", "due", false}, {"WHERE due = lower($1)", "due", false}, {"WHERE $1 IS NULL", "IS", false}, {"WHERE $1 = 5", "5", false},
		{"WHERE due = $2 OR $1", "due", false}, {"$1", "", false}, {"$1 =", "", false}, {"$1 due", "due", false}, {"due = $2", "due", false},
		{"WHERE due > $2 AND ($1 IS NULL OR x)", "due", false}, {"WHERE due > $2 AND $1", "due", false}, {"date_diff('hour', due, $1)", "due", false}, {"coalesce(due, $1)", "due", false}, {"f(due > 3, $1)", "due", false}, {"f(-$1)", "f", false}, {"SELECT due, $1", "due", false}, {"SELECT $1", "select", false},
		{"SET due = (($1))", "due", true}, {"WHERE due IN ($2, CAST($1 AS DATE))", "due", true}, {"WHERE due BETWEEN $2 AND $3 AND $1 IS NULL", "due", false}, {"WHERE due IN ($2) AND $1", "due", false},
		{"WHERE x BETWEEN 1 AND due > $1", "due", true}, {"WHERE due <> (SELECT $1)", "due", false}, {"WHERE due IN ($2) = f(x, $1)", "due", false}, {"SET due = -$1", "due", true}, {"INSERT INTO t (due) VALUES ($1)", "due", false},
	} {
		found := false
		for _, p := range NumberedParams(c.sql) {
			found = found || p.Number == 1 && p.IsBeside(c.column)
		}
		require.Equal(t, c.beside, found, c)
	}
}
