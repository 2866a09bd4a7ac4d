package flightconn

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheSQLStateIsFoundInTheText(t *testing.T) {
	for text, want := range map[string]string{
		"syntax error (SQLSTATE 42601)":              "42601",
		"SQLSTATE: 42P01, no such table":             "42P01",
		`sqlState="XX000" internal`:                  "XX000",
		"ERROR [23505] duplicate key":                "23505",
		"[ERROR] in line [12345678]":                 "",
		"duckdb error: Parser Error: syntax error":   "",
		"[WRONG] but then [40001] serialization":     "40001",
		"SQLSTATE is unknown":                        "",
		"a list like [1,2,3] or [abcde] is no state": "",
	} {
		require.Equal(t, want, sqlState(text), text)
	}
}
