package sqldriver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

func TestNoVerbShowsTheSecretsOfAName(t *testing.T) {
	c, err := Driver{}.OpenConnector("flightsql://ann:s3cret@127.0.0.1:1?max_size=2")
	require.NoError(t, err)
	db := sql.OpenDB(c)
	defer func() { require.NoError(t, db.Close()) }()
	p, err := flightpool.New(t.Context(), "grpc://127.0.0.1:1", flightpool.Config{MinIdle: -1, Headers: metadata.MD{"x-key": {"s3cret"}}})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close(t.Context())) }()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		for _, v := range []any{c, []any{c}, c.Driver(), db, NewConnector(p)} {
			require.NotContains(t, fmt.Sprintf(verb, v), "s3cret", "%s of %T", verb, v)
			require.NotContains(t, fmt.Sprintf(verb, v), fmt.Sprintf("%x", "s3cret"), "%s of %T", verb, v)
		}
	}
}

// inMemory is a server and the function that makes its pools, after a while.
func inMemory(t *testing.T, after time.Duration) (made *int, open func(context.Context) (*flightpool.FlightSQLPool, error)) {
	s, err := testserver.Start(testserver.Options{Profile: testserver.Strict(), Listen: testserver.InMemory})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	made = new(int)
	return made, func(ctx context.Context) (*flightpool.FlightSQLPool, error) {
		*made++
		select {
		case <-time.After(after):
			return flightpool.New(ctx, "grpc://127.0.0.1:1", flightpool.Config{MaxSize: 2, Dialer: s.Dial})
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func TestOneAttemptFailsForAllWhoWaitForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		refused := errors.New("nobody answers")
		db := sql.OpenDB(&dsnConnector{newPool: func(context.Context) (*flightpool.FlightSQLPool, error) {
			attempts++
			time.Sleep(5 * time.Second)
			return nil, refused
		}})
		began := time.Now()
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() {
				if err := db.PingContext(t.Context()); !errors.Is(err, refused) {
					t.Error(err)
				}
			})
		}
		callers.Wait()
		require.Equal(t, 5*time.Second, time.Since(began))
		require.Equal(t, 1, attempts)
		require.ErrorIs(t, db.PingContext(t.Context()), refused)
		require.Equal(t, 2, attempts, "whoever comes later tries again")
		require.NoError(t, db.Close())
	})
}

func TestThePoolIsMadeThoughNobodyWaitsThatLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made, open := inMemory(t, 3*time.Second)
		db := sql.OpenDB(&dsnConnector{newPool: open})
		defer func() { require.NoError(t, db.Close()) }()
		for i := range 4 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			began := time.Now()
			err := db.PingContext(ctx)
			cancel()
			if i == 3 {
				require.NoError(t, err)
				continue
			}
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, time.Second, time.Since(began))
			var e *flightpool.Error
			require.ErrorAs(t, err, &e)
			require.True(t, e.Unsent)
		}
		require.Equal(t, 1, *made)
	})
}

func TestCloseEndsThePoolThatIsBeingMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, open := inMemory(t, time.Hour)
		c := &dsnConnector{newPool: open}
		db := sql.OpenDB(c)
		began := time.Now()
		failed := make(chan error)
		go func() { failed <- db.PingContext(t.Context()) }()
		synctest.Wait()
		require.NoError(t, db.Close())
		require.ErrorIs(t, <-failed, flightpool.ErrClosed)
		require.Zero(t, time.Since(began))
		require.Nil(t, c.openedPool())
	})
}
