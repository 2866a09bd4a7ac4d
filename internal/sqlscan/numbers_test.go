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
		"":  nil,
		"$": nil,
	} {
		require.Equal(t, want, ParamNumbers(sql), sql)
	}
}
