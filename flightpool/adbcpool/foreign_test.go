package adbcpool

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/session"
	"github.com/flightpool/flightpool/testserver"
)

// endedWith is a context that ends with what another call has failed with, as in an errgroup.
func (r rig) endedWith(after time.Duration, with error) context.Context {
	ctx, end := context.WithCancelCause(r.Context())
	if after == 0 {
		end(with)
	} else {
		time.AfterFunc(after, func() { end(with) })
	}
	return ctx
}

// inTx has inserted a row in a transaction.
func (r rig) inTx(p *flightpool.FlightSQLPool) adbc.Connection {
	c, err := Database(p).Open(r.Context())
	require.NoError(r, err)
	require.NoError(r, c.(adbc.PostInitOptions).SetOption(adbc.OptionKeyAutoCommit, adbc.OptionValueDisabled))
	require.NoError(r, r.execute(r.Context(), c, "INSERT INTO t VALUES (1)"))
	return c
}

func (r rig) execute(ctx context.Context, c adbc.Connection, sql string) error {
	s, err := c.NewStatement()
	require.NoError(r, err)
	defer func() { require.NoError(r, s.Close()) }()
	require.NoError(r, s.SetSqlQuery(sql))
	_, err = s.ExecuteUpdate(ctx)
	return err
}

func TestAnADBCErrorHasNothingOfAnotherCalls(t *testing.T) {
	conflict := toADBC(&flightpool.Error{
		Op: "Commit", Stage: backend.StageExecute, Fault: flightpool.FaultStatement, SQLState: "40001", Err: status.Error(codes.Aborted, "could not serialize access"),
	})
	for _, kind := range kinds {
		inBubble(t, testserver.Strict(), func(r rig) {
			p := r.pool(kind)
			r.update(p, create)
			c := r.inTx(p)
			r.server.Faults().Set(testserver.Fault{On: testserver.OnEnd, Times: 1, After: true, Do: testserver.Delay(time.Minute)})
			err := c.Commit(r.endedWith(time.Second, conflict))
			require.ErrorIs(r, err, flightpool.ErrCommitUnknown, kind)
			require.ErrorIs(r, err, conflict, kind)
			var e adbc.Error
			require.ErrorAs(r, err, &e)
			require.Equal(r, adbc.StatusCancelled, e.Code, kind)
			require.Zero(r, e.SqlState, "%s: %v", kind, e)
			require.NotEqualValues(r, codes.Aborted, e.VendorCode, kind)
			require.Empty(r, e.Details, kind)
			time.Sleep(2 * time.Minute)
			require.NoError(r, c.Close())
		})
	}
}

// The transaction is open still after a commit of which nothing was sent, whatever another call has failed with.
func TestACommitThatWasNotSentForAnotherCallMayBeRepeated(t *testing.T) {
	for _, cause := range []error{flightpool.ErrSessionLost, session.ErrNoTx, flightpool.ErrCommitUnknown, errors.New("withdrawn")} {
		inBubble(t, testserver.Strict(), func(r rig) {
			p := r.pool("native")
			r.update(p, create)
			c := r.inTx(p)
			require.ErrorIs(r, c.Commit(r.endedWith(0, fmt.Errorf("another call: %w", cause))), cause)
			require.NoError(r, c.Commit(r.Context()), "%v", cause)
			require.NoError(r, c.Close())
		})
	}
}
