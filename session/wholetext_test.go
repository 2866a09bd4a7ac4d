package session

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

// cutter is a fakeConn whose server may run the first statement of a text alone.
type cutter struct {
	*fakeConn
	alone bool
	err   error
	asked int
}

func (c *cutter) CutsTexts(context.Context, bool, backend.TxID) (bool, error) {
	c.asked++
	return c.alone, c.err
}

// SQLite's library compiles the first statement of a text. Servers on it run that, and confirm the text.
func TestATextOfWhichTheServerRunsTheFirstStatementAloneIsRefused(t *testing.T) {
	for text, why := range map[string]error{"INSERT 1; INSERT 2": errFirstAlone, "SELECT 1; SELECT 2": errFirstRows, "SELECT 1; INSERT 1": errFirstAlone, "INSERT 1;": nil, "SELECT 1": nil} {
		several := why != nil
		for _, stateless := range []bool{false, true} {
			for _, c := range []*cutter{{alone: true}, {}, {err: transportError()}} {
				synctest.Test(t, func(t *testing.T) {
					c.fakeConn = &fakeConn{}
					r := newRig(t, c.fakeConn)
					s := New(c, r.policy, r.returned)
					if stateless {
						s = NewStateless(c, r.policy, r.returned)
					} else {
						must(t, s.BeginTransaction(t.Context()))
					}
					sent := r.conn.Log()
					err := drained(s.Execute(t.Context(), text))
					require.Equal(t, several, c.asked > 0, text)
					switch {
					case several && c.err != nil:
						require.ErrorIs(t, err, backend.ErrSessionLost, text)
					case several && c.alone:
						var e *backend.Error
						require.True(t, errors.As(err, &e) && e.Unsent && e.Fault == backend.FaultUnsupported, "%s: %v", text, err)
						require.ErrorIs(t, err, why, text)
						require.Equal(t, sent, r.conn.Log(), text)
						if !stateless {
							_, err = s.Update(t.Context(), "INSERT 1")
							require.NoError(t, err, "the transaction is as before")
							must(t, s.Commit(t.Context()))
						}
					default:
						require.NoError(t, err, text)
					}
					_ = s.Close()
					synctest.Wait()
				})
			}
		}
	}
}

// Half of a reset leaves the other half to the next borrower.
func TestAResetOfWhichTheServerRunsTheFirstStatementAloneCostsTheConnection(t *testing.T) {
	for reset, alone := range map[string]bool{"RESET a; RESET b": true, "RESET b; RESET a": false, "SET gizmosql.query_timeout = 0; RESET a": true, "SET gizmosql.query_timeout = 0": false} {
		synctest.Test(t, func(t *testing.T) {
			c := &cutter{fakeConn: &fakeConn{}, alone: reset == "RESET a; RESET b"}
			r := newRig(t, c.fakeConn)
			r.policy.OnReturn = ResetSQL(reset)
			s := New(c, r.policy, r.returned)
			_, err := s.Update(t.Context(), "SET a = 1")
			must(t, err)
			err = s.Close()
			require.Equal(t, alone, err != nil, "%v", err)
			require.Equal(t, alone, r.returns[0] != nil)
		})
	}
}

// A reset of one statement asks nothing of a server that cuts texts, nor one of several of a server that is not known to.
func TestAResetIsRefusedOnlyWhereTheServerCutsIt(t *testing.T) {
	for name, tc := range map[string]struct {
		reset string
		cuts  *cutter // nil: the server has no such question
		asked int
		want  string
	}{
		"one statement":            {"RESET a", &cutter{alone: true}, 0, ""},
		"several":                  {"RESET a; RESET b", &cutter{alone: true}, 1, errFirstAlone.Error()},
		"several, without a word":  {"RESET a; RESET b", &cutter{alone: true, err: transportError()}, 1, "connection reset"},
		"several, of another kind": {"RESET a; RESET b", nil, 0, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{})
			r.policy.OnReturn = ResetSQL(tc.reset)
			if tc.cuts != nil {
				tc.cuts.fakeConn = r.conn
				r.handle = New(tc.cuts, r.policy, r.returned)
			}
			_, err := r.handle.Update(t.Context(), "SET a = 1")
			must(t, err)
			err = r.handle.Close()
			if tc.cuts != nil {
				require.Equal(t, tc.asked, tc.cuts.asked, name)
			}
			if tc.want == "" {
				require.NoError(t, err, name)
				r.reused()
				return
			}
			require.ErrorContains(t, err, tc.want, name)
			require.ErrorContains(t, r.discarded(), tc.want, name)
		})
	}
}
