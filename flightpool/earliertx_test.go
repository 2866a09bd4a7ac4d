package flightpool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/testserver"
)

// SwanLake gives the session of a connection that broke to the next from its address and port, with the transaction
// that was open in it: what is stored then is stored.
func TestASessionOfABrokenConnectionIsInNoTransaction(t *testing.T) {
	profile := testserver.SwanLake()
	profile.SessionKey = testserver.ByPeerIP // one connection after the other
	failing := func(effect testserver.Effect) testserver.Fault {
		return testserver.Fault{On: testserver.OnDoPut, SQL: "ROLLBACK", Times: 1, Do: effect}
	}
	for name, fault := range map[string]testserver.Fault{
		"rolled back":  {},
		"refused once": failing(testserver.Fail(codes.Internal, "something happened")),
		"not answered": failing(testserver.Kill()),
		"a limit":      failing(testserver.Fail(codes.ResourceExhausted, "busy")),
	} {
		inBubble(t, profile, Config{MaxSize: 1}, func(r *rig) {
			r.exec("CREATE TABLE swanlake.t (a BIGINT)")
			s := r.session()
			require.NoError(r, s.BeginTransaction(r.Context()))
			_, err := s.Update(r.Context(), "INSERT INTO swanlake.t VALUES (1)")
			require.NoError(r, err)
			if fault.Do != nil {
				r.srv.Faults().Set(fault)
			}
			r.srv.Faults().KillConns()
			_ = s.Close()
			_, err = r.pool.Update(r.Context(), "INSERT INTO swanlake.t VALUES (2)")
			if name == "not answered" || name == "a limit" { // no connection was opened
				require.True(r, SafeToRetry(err))
				_, err = r.pool.Update(r.Context(), "INSERT INTO swanlake.t VALUES (2)")
			}
			require.NoError(r, err, name)
			r.pool.Reset()
			time.Sleep(time.Hour) // its session has gone
			require.Equal(r, "2", r.value(r.pool, "SELECT * FROM swanlake.t"), name)
		})
	}
}

// A server that knows its transactions, or whose sessions have names of their own, is sent nothing besides.
func TestOnlySessionsThatOutliveTheirConnectionsAreAskedToRollBack(t *testing.T) {
	bearer := testserver.SwanLake()
	bearer.SessionKey, bearer.Handshake = testserver.ByBearer, testserver.TokenInHeader
	for name, tc := range map[string]struct {
		opts testserver.Options
		cfg  Config
		asks bool
	}{
		"by its connection":  {testserver.Options{Profile: testserver.SwanLake()}, Config{}, true},
		"strict":             {testserver.Options{Profile: testserver.Strict()}, Config{}, false},
		"a token of its own": {testserver.Options{Profile: bearer, Users: map[string]string{"u": "p"}}, Config{Auth: BasicAuth("u", "p")}, false},
		"a token of all":     {testserver.Options{Profile: bearer, Tokens: []string{"t"}}, Config{Auth: BearerAuth("t")}, false},
	} {
		tc.cfg.MaxSize = 1
		inBubbleOn(t, tc.opts, tc.cfg, func(r *rig) {
			s := r.session()
			require.NoError(r, s.BeginTransaction(r.Context()))
			require.NoError(r, s.Rollback(r.Context()))
			require.NoError(r, s.Close())
			asked := func() (n int) {
				for _, st := range r.srv.Ledger().Statements() {
					if st.SQL == "ROLLBACK" && st.RPC == string(testserver.OnDoPut) {
						n++
					}
				}
				return n
			}
			require.Zero(r, asked(), name)
			r.pool.Reset()
			require.Equal(r, "1", r.value(r.pool, "SELECT 1"))
			require.Equal(r, tc.asks, asked() > 0, name)
		})
	}
}
