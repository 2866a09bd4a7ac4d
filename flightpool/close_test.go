package flightpool

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/cancel"
	"github.com/flightpool/flightpool/testserver"
)

// farConn makes each arrival of data take a millisecond.
type farConn struct{ net.Conn }

func (c farConn) Read(b []byte) (int, error) {
	time.Sleep(ms)
	return c.Conn.Read(b)
}

// calls are the calls of a pool, each to its end.
var calls = map[string]func(ctx context.Context, p *FlightSQLPool) error{
	"Query": func(ctx context.Context, p *FlightSQLPool) error {
		_, err := firstValue(ctx, p, "SELECT * FROM generate(5000)")
		return err
	},
	"Update": func(ctx context.Context, p *FlightSQLPool) error {
		_, err := p.Update(ctx, "INSERT INTO t VALUES (1)")
		return err
	},
	"QueryWithParams": func(ctx context.Context, p *FlightSQLPool) error {
		res, err := p.QueryWithParams(ctx, "SELECT ?", ints("p", 1))
		if err != nil {
			return err
		}
		defer res.Release()
		for res.Next() {
		}
		return res.Err()
	},
	"Ingest": func(ctx context.Context, p *FlightSQLPool) error {
		batch := ints("a", 1)
		rows, err := array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch})
		if err != nil {
			return err
		}
		_, err = p.Ingest(ctx, "t", rows, IngestOptions{})
		return err
	},
	"Ping":      func(ctx context.Context, p *FlightSQLPool) error { return p.Ping(ctx) },
	"WaitReady": func(ctx context.Context, p *FlightSQLPool) error { return p.WaitReady(ctx, 2) },
	"Transaction": func(ctx context.Context, p *FlightSQLPool) error {
		s, err := p.AcquireSession(ctx)
		if err != nil {
			return err
		}
		err = s.WithTransaction(ctx, func(ctx context.Context, s *SessionHandle) error {
			_, err := s.Update(ctx, "INSERT INTO t VALUES (1)")
			return err
		})
		return errors.Join(err, s.Close())
	},
	"Resize, Reset, EvictIdle": func(_ context.Context, p *FlightSQLPool) error {
		p.Reset()
		p.EvictIdle()
		return p.Resize(2)
	},
}

// A call beside Close succeeds, or says that the pool is closed or, when it was
// cut off, that the session is lost. Nothing is left of either.
func TestCloseAtEveryMomentOfEveryCall(t *testing.T) {
	for name, call := range calls {
		for _, patience := range []time.Duration{0, 3 * ms, time.Hour} {
			t.Run(fmt.Sprintf("%s, Close waits %v", name, patience), func(t *testing.T) {
				for moment := time.Duration(0); moment <= 40*ms; moment += ms {
					if sampled(fmt.Sprint(name, patience, moment), 3) {
						closeAt(t, moment, patience, call)
					}
				}
			})
		}
	}
}

func closeAt(t *testing.T, moment, patience time.Duration, call func(context.Context, *FlightSQLPool) error) {
	t.Helper()
	withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
		p, err := New(t.Context(), "grpc://server:1", Config{MaxSize: 2, Dialer: func(ctx context.Context, addr string) (net.Conn, error) {
			c, err := srv.Dial(ctx, addr)
			return farConn{c}, err
		}})
		require.NoError(t, err)
		_, err = p.Update(t.Context(), "CREATE TABLE t (a BIGINT)")
		require.NoError(t, err)
		var callers sync.WaitGroup
		for range 3 { // one has to wait for a connection
			callers.Go(func() {
				err := call(t.Context(), p)
				allowed := err == nil || errors.Is(err, ErrClosed) || patience < time.Hour && (errors.Is(err, ErrSessionLost) || errors.Is(err, ErrCommitUnknown))
				require.True(t, allowed, "Close after %v: %v", moment, err)
				require.NotErrorIs(t, err, context.Canceled, "nobody cancelled it")
			})
		}
		time.Sleep(moment)
		ctx, stop := context.WithTimeout(t.Context(), patience)
		defer stop()
		err = p.Close(ctx)
		require.True(t, err == nil || patience < time.Hour, "%v", err)
		require.ErrorIs(t, p.Ping(t.Context()), ErrClosed)
		require.Zero(t, p.Stats().Total)
		callers.Wait()
		require.NoError(t, srv.Ledger().Wait(t.Context(), func(s testserver.Snapshot) bool { return s.Conns == 0 }))
		require.ErrorIs(t, p.Close(t.Context()), ErrClosed)
		time.Sleep(ms) // a Read of farConn that was under way
	})
}

func TestCloseIsBoundedThoughAHookBlocks(t *testing.T) {
	withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
		release := make(chan struct{})
		p, err := New(t.Context(), "grpc://server:1", Config{Dialer: srv.Dial, Hooks: Hooks{Cancelled: func(string, cancel.Report) { <-release }}})
		require.NoError(t, err)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_, err = firstValue(ctx, p, "SELECT sleep('1h')")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		start := time.Now()
		bounded, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		err = p.Close(bounded)
		require.ErrorContains(t, err, "does a hook block?")
		require.LessOrEqual(t, time.Since(start), 15*time.Second)
		close(release)
	})
}

// countedCloses is a Layer that counts its Close.
type countedCloses struct{ n *int }

func (countedCloses) Wrap(_ context.Context, c backend.Conn) (backend.Conn, error) { return c, nil }
func (l countedCloses) Close() error                                               { *l.n++; return nil }

// What the second Close of an impatient caller ends is nothing of the first's.
func TestASecondCloseLeavesTheFirstItsTime(t *testing.T) {
	withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
		closes := 0
		p, err := New(t.Context(), "grpc://server:1", Config{Dialer: srv.Dial, Layer: countedCloses{&closes}})
		require.NoError(t, err)
		tx, err := p.BeginTx(t.Context(), TxOptions{})
		require.NoError(t, err)
		_, err = tx.Update(t.Context(), "CREATE TABLE t (a BIGINT)")
		require.NoError(t, err)
		first := make(chan error, 1)
		go func() { first <- p.Close(t.Context()) }()
		synctest.Wait()
		brief, stop := context.WithTimeout(t.Context(), ms)
		defer stop()
		err = p.Close(brief)
		require.ErrorIs(t, err, ErrClosed)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, closes)
		require.NoError(t, p.policy.OwnerContext.Err(), "the transaction can still be rolled back")
		require.NoError(t, tx.Rollback(t.Context()))
		require.NoError(t, <-first)
		require.Equal(t, 1, closes)
	})
}

// In an errgroup the cause of a context is what another call has failed with, such as that another pool is closed.
func TestTheFirstCloseIsTheFirstWhateverEndsItsContext(t *testing.T) {
	withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
		closes := 0
		p, err := New(t.Context(), "grpc://server:1", Config{Dialer: srv.Dial, Layer: countedCloses{&closes}})
		require.NoError(t, err)
		s, err := p.AcquireSession(t.Context())
		require.NoError(t, err)
		ctx, end := context.WithCancelCause(t.Context())
		end(fmt.Errorf("another pool: %w", ErrClosed))
		err = p.Close(ctx)
		require.ErrorContains(t, err, "1 connections closed under their borrowers")
		var e *Error
		require.ErrorAs(t, err, &e)
		require.NotEqual(t, FaultUsage, e.Fault)
		require.Equal(t, 1, closes, "what the connections share is let go of")
		require.Error(t, p.policy.OwnerContext.Err(), "what runs for the pool has ended")
		require.NoError(t, s.Close())
		require.ErrorIs(t, p.Close(t.Context()), ErrClosed)
		require.Equal(t, 1, closes)
	})
}
