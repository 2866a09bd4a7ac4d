package session

import (
	"context"
	"fmt"

	"github.com/flightpool/flightpool/backend"
)

// verifyNoTemps looks whether the drops have met what they were meant for. Servers
// without these catalogue functions fail here, and so cost the connection rather than
// show one borrower's table to the next. A drop by the name that the text gave is no
// proof: IF EXISTS succeeds where the name was read in another way than the server
// does.
func (s *SessionHandle) verifyNoTemps(ctx context.Context) error {
	r := stateQuery{key: "(temporary)", subject: "the temporary objects", sql: "SELECT (SELECT count(*) FROM duckdb_tables() WHERE temporary AND NOT internal)" +
		" + (SELECT count(*) FROM duckdb_views() WHERE temporary AND NOT internal)"}
	row, err := s.runStateQuery(ctx, r, backend.Call{})
	if err == nil && row[0].text != "0" {
		err = fmt.Errorf("%s temporary objects are left", row[0].text)
	}
	return err
}

// pivotTypesQuery are what DuckDB has made of the values that it found for a PIVOT. It
// makes them also for a PIVOT that then fails, and keeps them. min gives one name at a
// time, since the answer of a state query is one row.
var pivotTypesQuery = stateQuery{key: "(pivot)", subject: "the types of PIVOT",
	sql: "SELECT count(*), min(type_name) FROM duckdb_types() WHERE database_name = 'temp' AND starts_with(type_name, '__pivot_enum_')"}

// maxPivotTypes bounds what is dropped one by one.
const maxPivotTypes = 64

// dropPivotTypes drops them until there is none. A server without this catalogue
// function, which is asked twice since one failure may be its own, has no such
// types; one that has answered before has the function.
func (s *SessionHandle) dropPivotTypes(ctx context.Context) error {
	for range maxPivotTypes {
		row, err := s.runStateQuery(ctx, pivotTypesQuery, backend.Call{})
		if err != nil && backend.FaultIn(err).KeepsConn() {
			row, err = s.runStateQuery(ctx, pivotTypesQuery, backend.Call{})
		}
		switch {
		case err != nil && backend.FaultIn(err).KeepsConn() && !s.policy.answeredQueries.has(pivotTypesQuery.key):
			return nil
		case err != nil || row[0].text == "0":
			return err
		}
		if err := s.exec(ctx, "DROP TYPE temp.main."+quoteName(row[1].text), backend.Call{}); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s are more than %d", pivotTypesQuery.subject, maxPivotTypes)
}
