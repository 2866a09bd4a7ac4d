package session

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
)

// untoldRig is a rig in a transaction of a server that has refused to tell where the session is, and a query that is
// harmless, so that nothing is known of it. From then on it answers all.
func untoldRig(t *testing.T, c *stateConn, mode SessionReset) *rig {
	t.Helper()
	no := sqlError("not now")
	c.forgives = true
	c.failOnce = map[string][]error{}
	for _, r := range namespaceQueries {
		c.failOnce[r.sql] = []error{no}
	}
	c.failOnce["SELECT 1"] = []error{no}
	r := stateRig(t, c)
	r.policy.OnReturn = mode
	begin(t, r.handle)
	require.False(t, r.policy.reportsNamespace())
	require.False(t, r.policy.nonMovingInserts.has(namespaceUnsupported))
	return r
}

// load is a bulk load that leads the session to the place.
func (r *rig) load(c *stateConn, s *SessionHandle, table, place string) error {
	c.useParams = func() { c.settings["search_path"] = place }
	batch := int64Batch(1)
	defer batch.Release()
	_, err := s.UpdateWithRecordBatch(r.t.Context(), "INSERT INTO "+table+" VALUES (?)", batch)
	synctest.Wait() // its statement is closed behind it
	return err
}

// A session that a bulk load may have led elsewhere before anybody could ask where it was is not lent again, whatever is
// found out later, and whatever loads follow.
func TestASessionThatMayHaveBeenLedElsewhereUnseenIsNotLent(t *testing.T) {
	known := func(t *testing.T, r *rig) { r.policy.answeredQueries.add(searchPathQuery.key) }
	for name, then := range map[string]func(t *testing.T, c *stateConn, r *rig){
		"nothing follows": func(*testing.T, *stateConn, *rig) {},
		"another load, and it is asked then": func(t *testing.T, c *stateConn, r *rig) {
			known(t, r)
			must(t, r.load(c, r.handle, "far.t", "far.main"))
		},
		"a load that moves nothing, as is known": func(t *testing.T, c *stateConn, r *rig) {
			r.policy.nonMovingInserts.add("far..")
			must(t, r.load(c, r.handle, "far.t", "far.main"))
		},
		"a place that is not told": func(_ *testing.T, c *stateConn, _ *rig) {
			c.fail = map[string]error{searchPathQuery.sql: sqlError("not now"), namespaceQuery.sql: sqlError("not now"), "SELECT 1": sqlError("not now")}
		},
	} {
		for mode, reset := range map[string]SessionReset{"auto": ResetAuto, "none": ResetNone, "sql": ResetSQL("RESET threads")} {
			synctest.Test(t, func(t *testing.T) {
				c := newStateConn()
				r := untoldRig(t, c, reset)
				must(t, r.load(c, r.handle, "far.t", "far.main"))
				then(t, c, r)
				must(t, r.handle.Commit(t.Context()))
				require.Error(t, r.handle.Close(), "%s, %s: %q", name, mode, c.Log())
				_ = r.discarded()
			})
		}
	}
}

// A server that says later that it knows its transactions is not believed for a load of before.
func TestALoadOfBeforeTheServersWordIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStateConn()
		no := sqlError("not supported")
		proving := &proofConn{fakeConn: c.fakeConn, trustErr: no}
		conn := &provenStateConn{stateConn: c, proofConn: proving}
		r := untoldRig(t, c, ResetAuto)
		must(t, r.handle.Rollback(t.Context()))
		must(t, r.handle.Close())
		r.handle, r.returns = New(conn, r.policy, r.returned), nil
		for _, q := range namespaceQueries {
			c.failOnce[q.sql] = []error{no}
		}
		c.failOnce["SELECT 1"] = []error{no}
		begin(t, r.handle)
		must(t, r.load(c, r.handle, "far.t", "far.main"))
		must(t, r.handle.Commit(t.Context()))
		proving.trusted, proving.trustErr = true, nil
		begin(t, r.handle)
		must(t, r.load(c, r.handle, "far.t", "far.main"))
		must(t, r.handle.Commit(t.Context()))
		require.Error(t, r.handle.Close(), "%q", c.Log())
		_ = r.discarded()
	})
}

// provenStateConn is a stateConn whose word about its transactions can be set.
type provenStateConn struct {
	*stateConn
	proofConn *proofConn
}

func (c *provenStateConn) RejectsUnknownTx(ctx context.Context) (bool, error) {
	return c.proofConn.RejectsUnknownTx(ctx)
}

// What is known of a table's loads leaves nothing to find out at the end of the session.
func TestALoadThatIsKnownToMoveNothingLeavesNothingToAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStateConn()
		r := stateRig(t, c)
		r.policy.nonMovingInserts.add("far..")
		begin(t, r.handle)
		must(t, r.load(c, r.handle, "far.t", "lake.main"))
		must(t, r.handle.Commit(t.Context()))
		require.Empty(t, r.sent(func() { must(t, r.handle.Close()) }))
		r.reused()
	})
}

// The statement by which is learned that a load moves nothing is closed once, also where that load fails.
func TestALoadThatFailsClosesItsWitnessOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const insert = "INSERT INTO t VALUES (?)"
		c := newStateConn()
		c.failOnce = map[string][]error{insert: {nil, sqlError("Constraint Error: no")}}
		r := stateRig(t, c)
		must(t, r.load(c, r.handle, "t", "lake.main"))
		require.Error(t, r.load(c, r.handle, "t", "lake.main"))
		synctest.Wait()
		must(t, r.handle.Close())
		r.reused()
		r.clean()
	})
}

// A session that is led back by USE is compared, and what the server says of it is told.
func TestASessionThatIsLedBackByUSEIsComparedThen(t *testing.T) {
	const home = `USE "lake"."main"`
	limit := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultLimit, Err: status.Error(codes.ResourceExhausted, "busy")}
	for name, tc := range map[string]struct {
		conn  func(c *stateConn)
		why   string // "": it is lent again
		fault backend.Fault
	}{
		"it is there":     {conn: func(*stateConn) {}},
		"it is elsewhere": {conn: func(c *stateConn) { c.settings["search_path"] = "la-ke.main" }, why: "the catalogue and schema are not what they were"},
		"USE is refused":  {conn: func(c *stateConn) { c.fail = map[string]error{home: sqlError("no such schema")} }, why: "no such schema", fault: backend.FaultStatement},
		"it does not tell": {conn: func(c *stateConn) {
			c.failOnce = map[string][]error{namespaceQuery.sql: {nil, nil, sqlError("no place")}}
		}, why: "no place", fault: backend.FaultStatement},
		"it cannot tell just now": {conn: func(c *stateConn) { c.failOnce = map[string][]error{namespaceQuery.sql: {nil, nil, limit}} }, why: "busy", fault: backend.FaultLimit},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newStateConn()
			c.pathless = true
			tc.conn(c)
			r := stateRig(t, c)
			exec("USE other")(t, r.handle)
			err := r.handle.Close()
			if tc.why == "" {
				must(t, err)
				r.reused()
				return
			}
			require.ErrorContains(t, err, tc.why, name)
			require.Equal(t, tc.fault, backend.FaultIn(err), name)
			require.ErrorContains(t, r.discarded(), tc.why, name)
		})
	}
}

// One name is no place: a server that tells no more than that has the connection closed behind a USE.
func TestOneNameIsNoPlaceToGoBackTo(t *testing.T) {
	for changed, why := range map[bool]string{false: "", true: "cannot be put back"} {
		synctest.Test(t, func(t *testing.T) {
			conn := &fakeConn{fail: map[string]error{searchPathQuery.sql: sqlError("no such setting")}}
			r := newRig(t, conn)
			exec("USE other")(t, r.handle)
			if changed {
				conn.value = 7
			}
			err := r.handle.Close()
			if !changed {
				must(t, err)
				r.reused()
				return
			}
			require.ErrorContains(t, err, why)
			_ = r.discarded()
		})
	}
}

// What another session finds out of the server meanwhile is nothing against what this one has read.
func TestAnOptionThatLeadsElsewhereIsComparedWithWhatWasRead(t *testing.T) {
	for name, stubborn := range map[string]bool{"it leads back": false, "it does not": true} {
		synctest.Test(t, func(t *testing.T) {
			c := newStateConn()
			c.options = map[string]any{"catalog": "lake"}
			r := newRig(t, c.fakeConn)
			r.handle = New(leading{c}, r.policy, r.returned)
			must(t, r.handle.SetOption(t.Context(), "catalog", "other"))
			r.policy.nonMovingInserts.add(namespaceUnsupported)
			if stubborn {
				c.stubborn = "search_path"
			}
			err := r.handle.Close()
			require.NotContains(t, c.Log(), namespaceQuery.sql, name)
			if stubborn {
				require.ErrorContains(t, err, "is not what it was", name)
				_ = r.discarded()
				return
			}
			must(t, err)
			r.reused()
			require.Equal(t, "lake.main", c.settings["search_path"], name)
		})
	}
}

// Where the connection is closed at the end nobody asks for what could be put back.
func TestAnOptionOfASessionThatIsClosedAtItsEndReadsNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		r.policy.OnReturn = ResetDiscard
		must(t, r.handle.SetOption(t.Context(), "colour", "blue"))
		require.Equal(t, []string{"Prepare", "Options", "SetOptions"}, r.conn.Log())
		must(t, r.handle.Close())
		_ = r.discarded()
	})
}

// A failure of the moment is no word on whether a server tells where a session is, and a connection that breaks is asked
// nothing more.
func TestAServerThatCannotTellJustNowIsNotTakenForOneThatHasNoPlace(t *testing.T) {
	limit := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultLimit, Err: status.Error(codes.ResourceExhausted, "busy")}
	for name, first := range map[string]error{"a limit": limit, "a loss": transportError()} {
		synctest.Test(t, func(t *testing.T) {
			c := newStateConn()
			r := untoldRig(t, c, ResetNone)
			must(t, r.load(c, r.handle, "far.t", "far.main"))
			must(t, r.handle.Commit(t.Context()))
			c.failOnce[searchPathQuery.sql] = []error{sqlError("no")}
			c.failOnce[namespaceQuery.sql] = []error{first, sqlError("no")}
			c.failOnce[catalogQuery.sql] = []error{sqlError("no")}
			sent := r.sent(func() { require.Error(t, r.handle.Close(), name) })
			require.Equal(t, namespaceQuery.sql, sent[len(sent)-1], "%s: %q", name, sent)
			_ = r.discarded()
		})
	}
}
