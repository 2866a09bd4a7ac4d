package flightpool

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/script"
)

// storedRows is what the statements that begin with WITH have stored.
type storedRows struct {
	mu     sync.Mutex
	values []string
}

func (s *storedRows) store(_ context.Context, _ string, params arrow.RecordBatch) (array.RecordReader, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value := "a row"
	if params != nil {
		value = params.Column(0).ValueStr(0)
	}
	s.values = append(s.values, value)
	return array.NewRecordReader(arrow.NewSchema([]arrow.Field{{Name: "Count", Type: arrow.PrimitiveTypes.Int64}}, nil), nil)
}

// taken are the rows that have been stored since the last call.
func (s *storedRows) taken() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	values := s.values
	s.values = nil
	return values
}

// SwanLake takes what begins with WITH for a query, and runs a query to prepare it, with NULLs. As an update it refuses it then.
func TestAChangeBehindAWithIsStoredAsItIsToldOrNotAtAll(t *testing.T) {
	const (
		text    = "WITH a AS (SELECT 7 AS x) INSERT INTO t SELECT x FROM a"
		withArg = "WITH a AS (SELECT ? AS x) INSERT INTO t SELECT x FROM a"
		rows    = withArg + " RETURNING x"
	)
	calls := map[string]struct {
		run  func(ctx context.Context, s *SessionHandle) error
		want []string // stored where it has not failed
	}{
		"Update":             {func(ctx context.Context, s *SessionHandle) error { _, err := s.Update(ctx, text); return err }, []string{"a row"}},
		"Update with values": {func(ctx context.Context, s *SessionHandle) error { _, err := s.Update(ctx, withArg, 7); return err }, []string{"7"}},
		"Query with values":  {func(ctx context.Context, s *SessionHandle) error { return drained(s.Query(ctx, withArg, 7)) }, []string{"7"}},
		"RouteUpdate": {func(ctx context.Context, s *SessionHandle) error {
			return drained(s.QueryWithOptions(ctx, rows, QueryOptions{Route: RouteUpdate, Args: []any{7}}))
		}, []string{"7"}},
		"PrepareQuery": {func(ctx context.Context, s *SessionHandle) error {
			q, err := s.PrepareQuery(ctx, text)
			if err != nil {
				return err
			}
			return q.Close(ctx)
		}, nil},
		"PrepareQuery of a PRAGMA": {func(ctx context.Context, s *SessionHandle) error {
			q, err := s.PrepareQuery(ctx, "PRAGMA threads = 1")
			if err != nil {
				return err
			}
			return q.Close(ctx)
		}, nil},
		"PreparedQuery.Update": {func(ctx context.Context, s *SessionHandle) error {
			q, err := s.PrepareQuery(ctx, text)
			if err != nil {
				return err
			}
			if _, err = q.Update(ctx); err == nil {
				_, err = q.Update(ctx)
			}
			return err
		}, []string{"a row", "a row"}},
		"PreparedQuery.Update with values": {func(ctx context.Context, s *SessionHandle) error {
			q, err := s.PrepareQuery(ctx, withArg)
			if err != nil {
				return err
			}
			_, err = q.Update(ctx, 7)
			return err
		}, []string{"7"}},
	}
	gizmo := queueing()
	gizmo.MaxStatements = 0
	for _, profile := range []testserver.Profile{testserver.SwanLake(), gizmo, testserver.Strict()} {
		for name, call := range calls {
			t.Run(fmt.Sprint(profile.Name, " ", name), func(t *testing.T) {
				cfg := Config{MaxSize: 1}
				if profile.SessionKey == testserver.ByBearer {
					cfg.Auth = BasicAuth("u", "p")
				}
				var stored storedRows
				engine := script.New()
				engine.On("WITH", stored.store)
				engine.On("PRAGMA", stored.store)
				inBubbleOn(t, testserver.Options{Profile: profile, Engine: engine}, cfg, func(r *rig) {
					s := r.session()
					defer func() { require.NoError(r, s.Close()) }()
					for range 2 {
						err := call.run(r.Context(), s)
						if err != nil {
							require.Equal(r, "swanlake", profile.Name, "%v", err)
							require.Empty(r, stored.taken(), "%v", err)
							require.ErrorContains(r, err, "write them into the text")
							continue
						}
						require.Equal(r, call.want, stored.taken())
					}
				})
			})
		}
	}
}

// What the server says tells what it does with a query that it prepares, and not the name by which it is reached.
func TestTheNameOfAServerSaysNothingOfWhatItPrepares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stored storedRows
		engine := script.New()
		engine.On("WITH", stored.store)
		srv, err := testserver.Start(testserver.Options{Profile: testserver.SwanLake(), Engine: engine, Listen: testserver.InMemory})
		require.NoError(t, err)
		defer func() { require.NoError(t, srv.Close()) }()
		pool, err := New(t.Context(), "grpc://sql-functions:1", Config{Dialer: srv.Dial})
		require.NoError(t, err)
		defer func() { require.NoError(t, pool.Close(context.WithoutCancel(t.Context()))) }()
		_, err = pool.Update(t.Context(), "WITH a AS (SELECT ? AS x) INSERT INTO t SELECT x FROM a", 7)
		require.ErrorContains(t, err, "write them into the text")
		require.Empty(t, stored.taken())
	})
}
