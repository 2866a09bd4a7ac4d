package session

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheLastWordOnASettingIsASet(t *testing.T) {
	for text, want := range map[string]string{
		"3": "SET x = '3'", "it's": "SET x = 'it''s'", "": "SET x = ''",
		"1.8 GiB": "SET x = '1.85 GiB'", "953.6 MiB": "SET x = '953.65 MiB'", "0.0 KiB": "SET x = '0.05 KiB'",
		"1 GiB": "SET x = '1 GiB'", "1.85 GiB": "SET x = '1.85 GiB'", "x 1.8 GiB": "SET x = 'x 1.8 GiB'", "1.8 GiB of disk": "SET x = '1.8 GiB of disk'", "1.8 GB": "SET x = '1.8 GB'",
	} {
		statements, last := restoringStatements("x", cell{text: text})
		set := "x = " + literal(text)
		require.Equal(t, []string{"SET " + set, "RESET SESSION x", "SET SESSION " + set, "RESET x"}, statements, text)
		require.Equal(t, want, last, text)
	}
	statements, last := restoringStatements("x", cell{null: true})
	require.Equal(t, []string{"RESET x", "RESET SESSION x"}, statements)
	require.Empty(t, last)
}
