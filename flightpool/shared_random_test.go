package flightpool

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/testserver"
)

// shared is one handle that several goroutines use at once, on a server that fails.
type shared struct {
	*rig
	mu   sync.Mutex
	last int
	told map[string]toldRow
}

// toldRow is what was said of a row.
type toldRow struct {
	err   error
	maybe bool // it may have been in the transaction of another goroutine
	tx    int  // of which transaction it is; 0: none
}

func (s *shared) next() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	return strconv.Itoa(s.last)
}

func (s *shared) tell(k string, row toldRow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told[k] = row
}

func (s *shared) insert(k string) string {
	return "INSERT INTO " + s.bulkTable() + " VALUES (" + k + ")"
}

// within runs a call, which must return with its context, or else within limit.
func (s *shared) within(limit time.Duration, what string, call func(ctx context.Context)) {
	ctx, stop := context.WithTimeout(s.Context(), limit)
	defer stop()
	start := time.Now()
	call(ctx)
	if took := time.Since(start); took > limit+50*ms {
		s.Errorf("%s took %v of %v", what, took, limit)
	}
}

// act is one call of one goroutine.
func (s *shared) act(h *SessionHandle, rng *rand.Rand, inTx bool) {
	limit := time.Duration(1+rng.IntN(3000)) * ms
	switch what := rng.IntN(12); what {
	case 0, 1, 2:
		k := s.next()
		s.within(limit, "Update", func(ctx context.Context) {
			_, err := h.Update(ctx, s.insert(k))
			s.tell(k, toldRow{err: err, maybe: inTx})
		})
	case 3:
		k := s.next()
		first, _ := strconv.ParseInt(k, 10, 64)
		rows := ints("1", first)
		defer rows.Release()
		s.within(limit, "Update with rows", func(ctx context.Context) {
			_, err := h.UpdateWithRecordBatch(ctx, "INSERT INTO "+s.bulkTable()+" VALUES (?)", rows)
			s.tell(k, toldRow{err: err, maybe: inTx})
		})
	case 4, 5:
		s.within(limit, "Query", func(ctx context.Context) {
			rows := int64(0)
			res, err := h.Query(ctx, "SELECT * FROM generate(10, 2)")
			if err != nil {
				return
			}
			defer res.Release()
			for res.Next() {
				rows += res.RecordBatch().NumRows()
				if rng.IntN(8) == 0 {
					return
				}
			}
			if res.Err() == nil && rows != 10 {
				s.Errorf("%d rows and no error", rows)
			}
		})
	case 6:
		s.within(limit, "slow", func(ctx context.Context) { _ = drained(h.Query(ctx, "SELECT sleep('2s')")) })
	case 7:
		s.within(limit, "Ping", func(ctx context.Context) { _ = h.Ping(ctx) })
	case 8:
		s.within(limit, "Prepared", func(ctx context.Context) {
			q, err := h.PrepareQuery(ctx, "SELECT * FROM generate(6, 2)")
			if err != nil {
				return
			}
			_ = drained(q.Query(ctx))
			_ = q.Close(ctx)
		})
	case 9:
		s.within(limit, "SET", func(ctx context.Context) { _, _ = h.Update(ctx, "SET colour = 'red'") })
	case 10:
		if inTx {
			s.transaction(h, limit, rng)
		}
	case 11:
		if rng.IntN(6) == 0 {
			s.within(6*time.Second, "Close of the handle", func(context.Context) { _ = h.Close() })
		}
	}
}

func (s *shared) transaction(h *SessionHandle, limit time.Duration, rng *rand.Rand) {
	keys := []string{s.next(), s.next()}
	id, _ := strconv.Atoi(keys[0])
	s.within(limit, "transaction", func(ctx context.Context) {
		err := h.WithTransaction(ctx, func(ctx context.Context, h *SessionHandle) error {
			for _, k := range keys {
				if _, err := h.Update(ctx, s.insert(k)); err != nil {
					return err
				}
				select {
				case <-time.After(time.Duration(rng.IntN(200)) * ms):
				case <-ctx.Done():
				}
			}
			return nil
		})
		for _, k := range keys {
			s.tell(k, toldRow{err: err, tx: id})
		}
	})
}

// randomFault is any of a server's. Sessions are replaced only by one that tells: a read may come up to five seconds
// after its session was proven.
func randomFault(rng *rand.Rand, profile testserver.Profile) testserver.Fault {
	points := []testserver.Point{
		testserver.OnStatement, testserver.OnBatch, testserver.OnGetFlightInfo, testserver.OnDoGet, testserver.OnDoPut, testserver.OnBegin, testserver.OnEnd, testserver.OnPrepare, testserver.OnCancel,
		testserver.OnCloseSession, testserver.OnSession, testserver.OnConnect,
	}
	effects := []testserver.Effect{
		testserver.Hang(), testserver.Delay(time.Duration(rng.IntN(2000)) * ms), testserver.Kill(), testserver.Freeze(), testserver.GoAway(), testserver.Fail(codes.Internal, "it fails"),
		testserver.Fail(codes.Unavailable, "not now"), testserver.Fail(codes.ResourceExhausted, "too much"), testserver.Evict(),
	}
	if profile.SessionKey != testserver.ByCookie && profile.SessionKey != testserver.ByBearer {
		effects = effects[:len(effects)-1]
	}
	return testserver.Fault{On: points[rng.IntN(len(points))], After: rng.IntN(2) == 0, Skip: rng.IntN(4), Times: 1 + rng.IntN(2), Do: effects[rng.IntN(len(effects))]}
}

// Whatever several goroutines do with one session at once, and the server with them, and whenever the pool
// is closed: each call returns with its context, what it says of its change is true, and nothing is left.
func TestWhateverGoroutinesDoWithOneSession(t *testing.T) {
	programs := uint64(30)
	if os.Getenv("STRESS") != "" {
		programs = 1500
	}
	first, _ := strconv.ParseUint(os.Getenv("PROVE_SEED"), 10, 64)
	for seed := first; seed < first+programs; seed++ {
		synctest.Test(t, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			}()
			shareSession(t, seed)
		})
	}
}

func shareSession(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 11))
	cookies := testserver.Strict()
	cookies.Name, cookies.SessionKey, cookies.FreshCookie = "cookies", testserver.ByCookie, true
	profile := []testserver.Profile{testserver.Strict(), testserver.SwanLake(), testserver.GizmoSQL(), cookies}[seed%4]
	opts := testserver.Options{Profile: profile, Listen: testserver.InMemory}
	cfg := Config{MaxSize: 2, MinIdle: -1, HealthCheck: HealthCheck{Interval: -1}, Auth: BasicAuth("u", "p")}
	if rng.IntN(3) == 0 && profile.Handshake != testserver.NoToken {
		opts.Users = map[string]string{"u": "p"}
		opts.GRPC = (&rotation{trailer: rng.IntN(2) == 0, every: 1 + rng.IntN(3)}).anew().options()
	}
	if rng.IntN(3) == 0 {
		cfg.DialOptions = []grpc.DialOption{grpc.WithUserAgent("a test")} // for gRPC's own client
	}
	start := "(null)"
	if rng.IntN(2) == 0 {
		cfg.OnConnect, start = paint, "blue"
	}
	srv, err := testserver.Start(opts)
	require.NoError(t, err)
	defer func() { require.NoError(t, srv.Close()) }()
	cfg.Dialer = srv.Dial
	pool, err := New(t.Context(), "grpc://server:1", cfg)
	require.NoError(t, err)
	s := &shared{rig: &rig{t, srv, pool}, told: map[string]toldRow{}}
	defer func() { _ = pool.Close(t.Context()) }()
	s.exec("CREATE TABLE " + s.bulkTable() + " (a BIGINT)")
	inTx := rng.IntN(2) == 0
	for range 4 {
		for range rng.IntN(3) {
			srv.Faults().Set(randomFault(rng, profile))
		}
		var all sync.WaitGroup
		var h *SessionHandle
		s.within(20*time.Second, "AcquireSession", func(ctx context.Context) {
			var err error
			if h, err = pool.AcquireSession(ctx); err != nil {
				return
			}
			if found, err := firstValue(ctx, h, colour); err == nil && found != start {
				s.Errorf("on %s a borrower finds %q in place of %q", profile.Name, found, start)
			}
		})
		for range 3 {
			if h == nil {
				break
			}
			own := rand.New(rand.NewPCG(seed, rng.Uint64()))
			all.Go(func() {
				for range 5 {
					s.act(h, own, inTx)
					time.Sleep(time.Duration(own.IntN(300)) * ms)
				}
			})
		}
		if rng.IntN(8) == 0 {
			s.closeBeside(rng)
		}
		all.Wait()
		if h != nil {
			s.within(6*time.Second, "Close of the handle", func(context.Context) { _ = h.Close() })
		}
		srv.Faults().Clear()
		srv.Faults().ThawConns()
	}
	_ = pool.Close(s.Context())
	require.Zero(t, pool.Stats().Total)
	require.NoError(t, srv.Ledger().Wait(t.Context(), func(s testserver.Snapshot) bool { return s.Conns == 0 }))
	srv.Faults().EvictSessions() // servers keep those of connections that were cut
	s.check(profile.Name, cfg)
}

// closeBeside closes the pool beside all that.
func (s *shared) closeBeside(rng *rand.Rand) {
	time.Sleep(time.Duration(rng.IntN(3000)) * ms)
	patience := time.Duration(rng.IntN(2000)) * ms
	ctx, stop := context.WithTimeout(s.Context(), patience)
	defer stop()
	s.within(patience+10*time.Second, "Close of the pool", func(context.Context) { _ = s.pool.Close(ctx) })
}

// check compares what is stored with what was said.
func (s *shared) check(profile string, cfg Config) {
	time.Sleep(time.Hour)
	pool, err := New(s.Context(), "grpc://server:1", cfg)
	require.NoError(s, err)
	defer func() { _ = pool.Close(s.Context()) }()
	rows := map[string]int{}
	all, err := pool.Query(s.Context(), "SELECT * FROM "+s.bulkTable())
	require.NoError(s, err)
	defer all.Release()
	for all.Next() {
		for i := range int(all.RecordBatch().NumRows()) {
			rows[all.RecordBatch().Column(0).ValueStr(i)]++
		}
	}
	require.NoError(s, all.Err())
	for k, told := range s.told {
		stored, say := rows[k], fmt.Sprintf("%s: row %s, told %v (%+v)", profile, k, told.err, told)
		switch {
		case told.err == nil && !told.maybe:
			require.Equal(s, 1, stored, say)
		case told.err != nil && SafeToRetry(told.err), told.tx != 0 && errors.Is(told.err, ErrTxAborted) && !errors.Is(told.err, ErrCommitUnknown):
			require.Zero(s, stored, say)
		default:
			require.LessOrEqual(s, stored, 1, say)
		}
	}
}
