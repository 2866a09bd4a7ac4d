package session

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

// preparer answers the question what it does with a query that it prepares.
type preparer struct {
	*fakeConn
	repeats      bool
	noWord, fail error // of RepeatsQueries, of Prepare
	asked        int
}

func (p *preparer) RepeatsQueries(context.Context) (bool, error) { return p.repeats, p.noWord }

func (p *preparer) Prepare(ctx context.Context, sql string, call backend.Call) (backend.Prepared, error) {
	p.asked++
	if p.fail != nil {
		return nil, p.fail
	}
	return p.fakeConn.Prepare(ctx, sql, call)
}

func TestWhatAServerDoesWithAQueryThatItPreparesIsLearned(t *testing.T) {
	refusal := func(fault backend.Fault, words string) error {
		return &backend.Error{Fault: fault, Stage: backend.StagePrepare, Err: errors.New(words)}
	}
	statement, lost := backend.FaultStatement, refusal(backend.FaultTransport, "connection reset")
	for name, tc := range map[string]struct {
		conn    preparer
		want    preparing
		learned bool // the next is not asked
		asked   int
		err     error
	}{
		"repeats nothing":        {want: preparesOnly},
		"prepares":               {conn: preparer{repeats: true}, want: preparesOnly, learned: true, asked: 1},
		"runs":                   {conn: preparer{repeats: true, fail: refusal(statement, "duckdb error: Invalid Input Error: "+preparingWords)}, want: runsToPrepare, learned: true, asked: 1},
		"has no such function":   {conn: preparer{repeats: true, fail: refusal(statement, "no such function: error, in SELECT error('"+preparingWords+"')")}, want: preparesOnly, learned: true, asked: 1},
		"prepares nothing":       {conn: preparer{repeats: true, fail: refusal(backend.FaultUnsupported, "no")}, want: preparesOnly, learned: true, asked: 1},
		"refuses otherwise":      {conn: preparer{repeats: true, fail: refusal(statement, "too busy")}, want: preparingUnknown, asked: 1},
		"is lost":                {conn: preparer{repeats: true, fail: lost}, want: preparingUnknown, asked: 1, err: lost},
		"refuses to be asked":    {conn: preparer{noWord: refusal(backend.FaultUsage, "no transactions")}, want: preparesOnly, learned: true, asked: 1},
		"is lost as it is asked": {conn: preparer{noWord: lost}, want: preparingUnknown, err: backend.ErrSessionLost},
	} {
		t.Run(name, func(t *testing.T) {
			conn := tc.conn
			conn.fakeConn = &fakeConn{}
			r := newRig(t, conn.fakeConn)
			r.handle = New(&conn, r.policy, r.returned)
			how, err := r.handle.learnPreparing(t.Context())
			require.Equal(t, tc.want, how)
			require.ErrorIs(t, err, tc.err)
			require.Equal(t, tc.asked, conn.asked)
			require.Equal(t, tc.learned, r.policy.preparing.Load() != int32(preparingUnknown))
			if tc.learned {
				conn.fail = lost
				how, err = r.handle.learnPreparing(t.Context())
				require.NoError(t, err)
				require.Equal(t, tc.want, how)
			}
			require.NoError(t, r.handle.Close())
		})
	}
}
