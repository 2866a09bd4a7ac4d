package sqldriver

import (
	"context"
	"database/sql/driver"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

var errWhy = errors.New("the request was withdrawn")

// What the driver answers itself says the cause of a context as the pool does, and that
// nothing was sent.
func TestWhatTheDriverAnswersItselfSaysTheCauseOfAContext(t *testing.T) {
	hang := testserver.Fault{On: testserver.OnEnd, Do: testserver.Hang()}
	for name, tc := range map[string]struct {
		call   func(ctx context.Context, end func(), s *testserver.Server, c driver.Conn) error
		unsent bool
	}{
		"Connect while the pool is made": {func(ctx context.Context, end func(), _ *testserver.Server, _ driver.Conn) error {
			connector := &dsnConnector{newPool: func(ctx context.Context) (*flightpool.FlightSQLPool, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}}
			defer func() { _ = connector.Close() }()
			time.AfterFunc(time.Second, end)
			_, err := connector.Connect(ctx)
			return err
		}, true},
		"Rollback behind its caller": {func(ctx context.Context, end func(), _ *testserver.Server, c driver.Conn) error {
			tx, err := c.(*conn).BeginTx(ctx, driver.TxOptions{})
			if err != nil {
				return err
			}
			end()
			return tx.Rollback()
		}, false},
		"Rollback that is not answered": {func(ctx context.Context, end func(), s *testserver.Server, c driver.Conn) error {
			tx, err := c.(*conn).BeginTx(ctx, driver.TxOptions{})
			if err != nil {
				return err
			}
			s.Faults().Set(hang)
			time.AfterFunc(time.Second, end)
			return tx.Rollback()
		}, false},
		"a call behind a rollback": {func(ctx context.Context, end func(), s *testserver.Server, c driver.Conn) error {
			own, stop := context.WithCancel(context.WithoutCancel(ctx))
			defer stop()
			tx, err := c.(*conn).BeginTx(own, driver.TxOptions{})
			if err != nil {
				return err
			}
			s.Faults().Set(hang)
			stop()
			_ = tx.Rollback()
			time.AfterFunc(time.Second, end)
			_, err = c.(*conn).ExecContext(ctx, "SELECT 1", nil)
			return err
		}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, db := openedOn(t, testserver.Strict())
			p := Pool(db)
			c, err := NewConnector(p).Connect(t.Context())
			require.NoError(t, err)
			ctx, cancel := context.WithCancelCause(t.Context())
			err = tc.call(ctx, func() { cancel(errWhy) }, s, c)
			require.ErrorIs(t, err, context.Canceled, name)
			require.ErrorIs(t, err, errWhy, name)
			var e *flightpool.Error
			require.Equal(t, tc.unsent, errors.As(err, &e) && e.Unsent, "%s: %v", name, err)
			s.Faults().Clear()
			require.NoError(t, c.Close())
		})
	}
}
