package flightpool

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
)

// An outageNet is a server that is away at times: what is connected is cut at the
// beginning, and dials are refused, or unanswered, until the end.
type outageNet struct {
	srv *testserver.Server

	mu     sync.Mutex
	until  time.Time // the end of the latest outage
	silent bool
	conns  []net.Conn
}

func (n *outageNet) begin(lasts time.Duration, silent bool) {
	n.mu.Lock()
	n.until, n.silent = time.Now().Add(lasts), silent
	conns := n.conns
	n.conns = nil
	n.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

// left is how much longer the server is away.
func (n *outageNet) left() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Until(n.until)
}

func (n *outageNet) dial(ctx context.Context, addr string) (net.Conn, error) {
	n.mu.Lock()
	left, silent := time.Until(n.until), n.silent
	n.mu.Unlock()
	if left > 0 && !silent {
		return nil, syscall.ECONNREFUSED
	}
	if left > 0 {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(left):
		}
	}
	c, err := n.srv.Dial(ctx, addr)
	if err == nil {
		n.mu.Lock()
		n.conns = append(n.conns, c)
		n.mu.Unlock()
	}
	return c, err
}

// withOutages runs f with a pool on a server that can be away.
func withOutages(t *testing.T, cfg Config, f func(t *testing.T, n *outageNet, p *FlightSQLPool)) {
	t.Helper()
	withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
		n := &outageNet{srv: srv}
		cfg.Dialer = n.dial
		p, err := New(t.Context(), "grpc://server:1", cfg)
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Close(context.WithoutCancel(t.Context()))) }()
		f(t, n, p)
	})
}

// What failed long ago is no part of the outage of now, whatever was between.
func TestAFailureOfLongAgoFailsNobody(t *testing.T) {
	for name, between := range map[string]func(t *testing.T, p *FlightSQLPool){
		"nothing": func(*testing.T, *FlightSQLPool) { time.Sleep(8 * time.Hour) },
		"calls on a connection that is held": func(t *testing.T, p *FlightSQLPool) {
			for range 600 {
				require.NoError(t, p.Ping(t.Context()))
				time.Sleep(time.Second)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			withOutages(t, Config{MinIdle: -1, MaxSize: 2}, func(t *testing.T, n *outageNet, p *FlightSQLPool) {
				for range 5 {
					held, err := p.AcquireSession(t.Context())
					require.NoError(t, err)
					n.mu.Lock()
					n.until = time.Now().Add(10 * ms) // dials fail, and what is connected lives
					n.mu.Unlock()
					short, stop := context.WithTimeout(t.Context(), 5*ms)
					require.Error(t, p.Ping(short))
					stop()
					time.Sleep(10 * ms)
					require.NoError(t, held.Close())
					between(t, p)
					n.begin(time.Second, false)
					long, stop := context.WithTimeout(t.Context(), 30*time.Second)
					require.NoError(t, p.Ping(long))
					stop()
					n.begin(0, false) // and nothing is connected
				}
			})
		})
	}
}

// TestOutagesShorterThanUnhealthyAfterFailNobodyWhoCanWait runs random programs of
// outages and callers: those fail alone whose deadline the outage outlasts, or who
// have none.
func TestOutagesShorterThanUnhealthyAfterFailNobodyWhoCanWait(t *testing.T) {
	const slack = 3 * time.Second // a pause of a second, a dial, and those who come first
	for seed := range uint64(12) {
		random := rand.New(rand.NewPCG(seed, 9))
		cfg := Config{MinIdle: []int{-1, -1, 1, 2}[random.IntN(4)], MaxSize: 2 + random.IntN(3)}
		cfg.HealthCheck.ValidateOnAcquire = random.IntN(3) == 0
		if random.IntN(2) == 0 {
			cfg.IdleTTL = time.Minute
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			withOutages(t, cfg, func(t *testing.T, n *outageNet, p *FlightSQLPool) {
				var callers sync.WaitGroup
				for range 60 {
					switch random.IntN(6) {
					case 0:
						if n.left() < -6*time.Second {
							n.begin(time.Duration(1+random.IntN(4000))*ms, random.IntN(3) == 0)
						}
					case 1, 2, 3, 4:
						deadline := []time.Duration{5 * ms, 500 * ms, 10 * time.Second, 29 * time.Second, 0}[random.IntN(5)]
						hold := []time.Duration{0, 100 * ms, 500 * ms}[random.IntN(3)]
						kind := random.IntN(3)
						callers.Go(func() { outageCaller(t, n, p, kind, deadline, hold, slack) })
					}
					time.Sleep([]time.Duration{0, ms, 100 * ms, time.Second, 7 * time.Second, time.Minute, time.Hour}[random.IntN(1+random.IntN(7))])
					require.NoError(t, p.Stats().UnhealthyReason, "no outage lasts for UnhealthyAfter")
				}
				callers.Wait()
			})
		})
	}
}

// outageCaller makes one call, or holds a session, and judges its error.
func outageCaller(t *testing.T, n *outageNet, p *FlightSQLPool, kind int, deadline, hold, slack time.Duration) {
	ctx := t.Context()
	if deadline > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, deadline)
		defer stop()
	}
	start, away := time.Now(), n.left()
	var err error
	switch kind {
	case 0:
		err = p.Ping(ctx)
	case 1:
		_, err = firstValue(ctx, p, "SELECT 1")
	default:
		s, failure := p.AcquireSession(ctx)
		if err = failure; err == nil {
			time.Sleep(hold)
			_ = s.Close() // its connection may be cut
		}
	}
	again := n.left() > away // an outage has begun meanwhile
	if err != nil && deadline > max(away, 4*time.Second)+slack {
		t.Errorf("kind %d, deadline %v, away for %v more, again %v: after %v: %v", kind, deadline, away, again, time.Since(start), err)
	}
}

// Nothing but calls may follow the open that found the server back: what is in use
// needs no check.
func TestAServerThatAnswersCallsIsHealthyAgain(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, p *FlightSQLPool) error{
		"Query": func(ctx context.Context, p *FlightSQLPool) error {
			_, err := firstValue(ctx, p, "SELECT 1")
			return err
		},
		"session": func(ctx context.Context, p *FlightSQLPool) error {
			s, err := p.AcquireSession(ctx)
			if err != nil {
				return err
			}
			_, err = firstValue(ctx, s, "SELECT 1")
			return errors.Join(err, s.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			withOutages(t, Config{MinIdle: -1, MaxSize: 8, HealthCheck: HealthCheck{Interval: -1}}, func(t *testing.T, n *outageNet, p *FlightSQLPool) {
				n.begin(20*time.Second, false)
				for n.left() > time.Second {
					ctx, stop := context.WithTimeout(t.Context(), 200*ms)
					_ = call(ctx, p)
					stop()
					time.Sleep(300 * ms)
				}
				require.Error(t, p.Stats().UnhealthyReason)
				time.Sleep(n.left() + longestPause)
				require.NoError(t, call(t.Context(), p))
				require.NoError(t, call(t.Context(), p))
				require.NoError(t, p.Stats().UnhealthyReason, "an open and two calls have been answered")

				n.begin(0, false) // what is connected is cut; the server is there
				var callers sync.WaitGroup
				for range 8 {
					callers.Go(func() {
						ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
						defer stop()
						if err := call(ctx, p); errors.Is(err, ErrUnhealthy) {
							t.Errorf("of a server that is there: %v", err)
						}
					})
				}
				callers.Wait()
			})
		})
	}
}
