package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

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

// What was to undo something, and has not, is no reason to store it.
func TestWhatARefusedRollbackWasToUndoIsNotCommitted(t *testing.T) {
	for name, tc := range map[string]struct {
		profile    testserver.Profile
		mark, undo string
	}{
		"no savepoints":      {testserver.SwanLake(), "SAVEPOINT a;", "ROLLBACK TO a;"},
		"another form":       {testserver.Profile{}, "SAVEPOINT a;", "ROLLBACK WORK TO SAVEPOINT a;"},
		"a name of words":    {testserver.Profile{}, `SAVEPOINT "a b";`, `ROLLBACK TO "a b";`},
		"of all, and on":     {testserver.Profile{}, "SELECT 1 AS one;", "ROLLBACK AND CHAIN;"},
		"behind a comment":   {testserver.Profile{}, "SELECT 1 AS one;", "/* x */ ABORT AND NO CHAIN; -- y"},
		"and outside of one": {testserver.Profile{}, "SELECT 1 AS one;", "ROLLBACK PREPARED 'x';"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := serve(t, testserver.Options{Profile: tc.profile})
			s := open(t, nil, srv.URI())
			s.prompted("=>")
			s.enter("CREATE TABLE kept (a BIGINT);")
			s.enter("INSERT INTO kept VALUES (1), (2);")
			for _, line := range []string{"BEGIN;", tc.mark, "DELETE FROM kept;", tc.undo, "INSERT INTO kept VALUES (3);", "COMMIT;"} {
				s.enter(line)
			}
			s.wait("ERROR: nothing was committed: ")
			s.prompted("=>")
			s.enter("SELECT * FROM kept;")
			require.Contains(t, s.wait("(2 rows"), "ERROR: not run, as what was to be rolled back is not")
		})
	}
}

// failOnce has the server fail the next end of a savepoint.
func failOnce(srv *testserver.Server) {
	srv.Faults().Set(testserver.Fault{On: "EndSavepoint", Times: 1, Do: testserver.Fail(codes.Internal, "no")})
}

// A rollback to a savepoint that may be another than was meant stores nothing of what was to be rolled back.
func TestARollbackToASavepointFollowsNoOtherThatWasRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		isRefused bool // by the shell or the session; else by the server
		entered   []string
	}{
		"of all":            {true, []string{"SAVEPOINT a;", "INSERT INTO kept VALUES (2);", "ROLLBACK AND CHAIN;", "INSERT INTO kept VALUES (3);", "SAVEPOINT a;", "INSERT INTO kept VALUES (4);"}},
		"to one in words":   {true, []string{`SAVEPOINT "a b";`, "INSERT INTO kept VALUES (2);", "SAVEPOINT a;", `ROLLBACK TO "a b";`}},
		"to one not there":  {true, []string{"SAVEPOINT a;", "INSERT INTO kept VALUES (2);", "ROLLBACK TO b;"}},
		"to an older one":   {false, []string{"SAVEPOINT b;", "INSERT INTO kept VALUES (2);", "SAVEPOINT a;", "INSERT INTO kept VALUES (3);", "ROLLBACK TO b;"}},
		"marked meanwhile":  {false, []string{"SAVEPOINT a;", "ROLLBACK TO a;", "SELECT 1;", "SAVEPOINT a;", "SELECT 1;"}},
		"freed meanwhile":   {false, []string{"SAVEPOINT a;", "INSERT INTO kept VALUES (2);", "SAVEPOINT a;", "ROLLBACK TO SAVEPOINT a;", "RELEASE a;"}},
		"ended meanwhile":   {false, []string{"SAVEPOINT a;", "ROLLBACK TO a;", "ROLLBACK AND CHAIN;"}},
		"another meanwhile": {false, []string{"SAVEPOINT a;", "SAVEPOINT b;", "ROLLBACK TO a;", "ROLLBACK TO b;"}},
	} {
		t.Run(name, func(t *testing.T) {
			srv := serve(t, testserver.Options{})
			s := open(t, nil, srv.URI())
			s.prompted("=>")
			s.enter("CREATE TABLE kept (a BIGINT);")
			s.enter("BEGIN;")
			s.enter("INSERT INTO kept VALUES (1);")
			if !tc.isRefused {
				failOnce(srv)
			}
			for _, line := range append(tc.entered, "ROLLBACK TO a;", "COMMIT;") {
				s.enter(line)
			}
			s.wait("ERROR: nothing was committed: ")
			s.prompted("=>")
			s.enter("SELECT * FROM kept;")
			require.Contains(t, s.wait("(0 rows"), "ERROR: not run, as what was to be rolled back is not")
		})
	}
}

// A rollback to a savepoint that has failed may be tried again, and what was asked meanwhile is no hindrance.
func TestARollbackThatIsTakenFollowsTheSameThatFailed(t *testing.T) {
	srv := serve(t, testserver.Options{})
	s := open(t, nil, srv.URI())
	s.prompted("=>")
	s.enter("CREATE TABLE kept (a BIGINT);")
	failOnce(srv)
	for _, line := range []string{"BEGIN;", "INSERT INTO kept VALUES (1);", "SAVEPOINT a;", "INSERT INTO kept VALUES (2);", "ROLLBACK TO a;"} {
		s.enter(line)
	}
	s.wait("ROLLBACK first")
	s.prompted("!>")
	failOnce(srv)
	s.enter("ROLLBACK TO a; -- once more")
	s.prompted("!>")
	s.enter("SELECT * FROM kept;")
	s.wait("ERROR: not run")
	s.prompted("!>")
	s.enter("ROLLBACK TO SAVEPOINT a;")
	s.prompted("*>")
	s.enter("COMMIT;")
	s.prompted("=>")
	s.enter("SELECT * FROM kept;")
	s.wait("(1 row,")

	s.enter("BEGIN;")
	s.enter("DELETE FROM kept;")
	s.enter("ROLLBACK TO b;")
	s.prompted("!>")
	s.enter(`\rollback`)
	s.prompted("=>")
	s.enter("INSERT INTO kept VALUES (4);")
	s.enter("SELECT * FROM kept;")
	s.wait("(2 rows")
}

// The transaction goes on behind a question for tables that was interrupted, and so says the prompt.
func TestAnInterruptedQuestionForTablesAbortsNoTransaction(t *testing.T) {
	srv := serve(t, testserver.Options{})
	s := open(t, nil, srv.URI()+"?max_size=1") // completion has no connection to ask on
	s.prompted("=>")
	s.enter("CREATE TABLE kept (a BIGINT);")
	s.wait("OK")
	s.enter("BEGIN;")
	s.prompted("*>")
	s.enter("INSERT INTO kept VALUES (1);")
	s.wait("1 row affected")
	asked, hang := make(chan struct{}), testserver.Hang()
	srv.Faults().Set(testserver.Fault{On: testserver.OnDoGet, Times: 1, Do: func(ctx context.Context, at *testserver.FaultTarget) error {
		close(asked)
		return hang(ctx, at)
	}})
	s.enter(`\d`)
	<-asked
	s.keys("C-c")
	require.NotContains(t, s.wait("ERROR: interrupted"), "rolled back")
	s.prompted("*>")
	s.enter("COMMIT;")
	s.prompted("=>")
	s.enter("SELECT * FROM kept;")
	s.wait("(1 row,")
}
