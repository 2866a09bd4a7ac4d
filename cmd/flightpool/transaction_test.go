package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
)

// The shell carries out a few forms of BEGIN. Those that it refuses were to begin a transaction as well.
func TestWhatIsPastedBehindABeginThatIsNotTakenIsNotRun(t *testing.T) {
	srv := serve(t, testserver.Options{})
	s := open(t, nil, srv.URI())
	s.prompted("=>")
	s.enter("CREATE TABLE kept (a BIGINT);")
	s.enter("INSERT INTO kept VALUES (1), (2);")
	s.wait("2 rows affected")
	for _, begin := range []string{"BEGIN ISOLATION LEVEL SERIALIZABLE;", "START TRANSACTION READ ONLY;", "/* SQLite's */ BEGIN IMMEDIATE; -- or so"} {
		s.enter(begin)
		s.enter("DELETE FROM kept;")
		s.enter("ROLLBACK;")
	}
	s.prompted("=>")
	s.enter("SELECT * FROM kept;")
	require.Contains(t, s.wait("(2 rows"), "ERROR: not run, as it would be outside of the transaction")
}
