package main

import (
	"bytes"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Who forgets --postgres, or takes another flag for it, finds no password in the error.
func TestAConnectionStringInAnotherPlaceIsNotPrinted(t *testing.T) {
	m := filled(t, "b", 10, 0, process{id: "A", leases: 1})
	for _, text := range []string{"postgres://u:" + secret + `@h/"db`, "host=h user=u password=" + secret, "host=h PASSWORD = '" + secret + "'"} {
		for _, args := range [][]string{
			{"show", "-b", text},
			{"show", "--budget=" + text},
			{"show", "--watch", text},
			{"show", "--timeout=" + text},
			{"free", text},
			{"limit", text},
			{"limit", "5", "--force=" + text},
			{text},
		} {
			r := inMemory(t.Context(), m, nil, args...)
			require.NotZero(t, r.code)
			require.NotContains(t, r.out+r.err, secret, args[0])
		}
		for _, postgres := range []string{"", "postgres://u@127.0.0.1:1/db"} {
			long := text + strings.Repeat(" ", 300)
			var out, errs bytes.Buffer
			code := run(t.Context(), []string{"show", "--postgres", postgres, "--table", long}, streams{nil, &out, &errs}, openStore)
			require.Equal(t, exitUsage, code, errs.String())
			require.NotContains(t, out.String()+errs.String(), secret)
			require.Contains(t, errs.String(), "a connection string is given by --postgres")
		}
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// A disk that is full is no table that does not answer, and a change that nobody is told of is made all the same.
func TestAnOutputThatFailsIsNoTableThatDoesNotAnswer(t *testing.T) {
	m := filled(t, "b", 10, 0, process{id: "A", leases: 1})
	for _, args := range [][]string{
		{"show", "--sample", "0"}, {"show", "--json", "--sample", "0"}, {"show", "--watch", "1s"},
		{"limit", "20"}, {"limit", "20", "--json"}, {"free", "A", "--yes"},
	} {
		var errs bytes.Buffer
		code := run(t.Context(), args, streams{nil, fullDisk{}, &errs}, inMemoryStore(m))
		require.Equal(t, exitFailure, code, "%v: %s", args, errs.String())
		require.Contains(t, errs.String(), "the output cannot be written: no space left on device")
		require.NotContains(t, errs.String(), "did not answer")
		require.Equal(t, args[0] != "show", strings.Contains(errs.String(), "the change is made"), errs.String())
	}
}

// A name that only speaks of passwords is a name.
func TestATableOfPasswordsIsATable(t *testing.T) {
	for text, is := range map[string]bool{"passwords": false, "password_leases": false, "host=h password=p": true, "PASSWORD = p": true, "postgres://h/db?password=p": true, "postgres://u:p@h": true} {
		require.Equal(t, is, isConnectionString(text), text)
	}
}
