package session

import (
	"context"
	"fmt"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/effect"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// tempsQuery counts the temporary tables and views of the session.
var tempsQuery = stateQuery{key: "(temporary)", subject: "the temporary objects", sql: "SELECT (SELECT count(*) FROM duckdb_tables() WHERE temporary AND NOT internal)" +
	" + (SELECT count(*) FROM duckdb_views() WHERE temporary AND NOT internal)"}

// verifyTemps looks whether the drops have met what they were meant for. Servers
// without these catalogue functions fail here, and so cost the connection rather than
// show one borrower's table to the next. A drop by the name that the text gave is no
// proof: IF EXISTS succeeds where the name was read in another way than the server
// does. Nor may what OnConnect has made be gone.
func (s *SessionHandle) verifyTemps(ctx context.Context) error {
	if s.tempsAtStart() != noTemps {
		return s.verifyKeptTemps(ctx)
	}
	row, err := s.runStateQuery(ctx, tempsQuery, backend.Call{})
	if err == nil && row[0].text != noTemps {
		err = fmt.Errorf("%s temporary objects are left", row[0].text)
	}
	return err
}

// verifyIngestion looks whether an ingestion that has failed has left its rows: GizmoSQL appends them to a temporary table of its
// own first, where that of the caller's is there, and keeps it then. A server without these catalogue functions has none.
func (s *SessionHandle) verifyIngestion(ctx context.Context) error {
	err := s.verifyTemps(ctx)
	if err != nil && backend.FaultIn(err).KeepsConn() && !effect.NoVerdict(err) {
		return nil
	}
	return err
}

// dropTemp drops a temporary table or view, on a server that tells what such objects the session has: on others temp may be
// a catalogue like any other, and the name somebody's table.
func (s *SessionHandle) dropTemp(ctx context.Context, kind string, e sqlscan.Effect) error {
	if !s.policy.answeredQueries.has(tempsQuery.key) {
		if _, err := s.runStateQuery(ctx, tempsQuery, backend.Call{}); err != nil {
			return err
		}
	}
	return s.exec(ctx, "DROP "+kind+" IF EXISTS temp.main."+lastPart(e.Name), backend.Call{})
}
