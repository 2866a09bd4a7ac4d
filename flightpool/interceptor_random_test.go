package flightpool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/flightpool/flightpool/testserver"
)

// rude are interceptors that do what none should, wherever they are called.
type rude struct {
	armed atomic.Bool
	mu    sync.Mutex
	rng   *rand.Rand
	often int
}

func (d *rude) draw(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(n)
}

// act does one of these things, or nothing.
func (d *rude) act(ctx context.Context) {
	if !d.armed.Load() || d.draw(d.often) > 0 {
		return
	}
	switch d.draw(5) {
	case 0:
		panic("an interceptor's")
	case 1:
		runtime.Goexit()
	case 2:
		select {
		case <-ctx.Done():
		case <-time.After(time.Minute): // that of a COMMIT may have no end
		}
	case 3:
		time.Sleep(100 * ms)
	case 4:
		time.Sleep(3 * time.Second)
	}
}

func (d *rude) options() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			d.act(ctx)
			err := invoke(ctx, method, req, reply, cc, opts...)
			d.act(ctx)
			return err
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			d.act(ctx)
			stream, err := open(ctx, desc, cc, method, opts...)
			if err != nil {
				return nil, err
			}
			d.act(ctx)
			return &rudeStream{stream, d}, nil
		}),
	}
}

type rudeStream struct {
	grpc.ClientStream
	*rude
}

func (s *rudeStream) RecvMsg(m any) error {
	s.act(s.Context())
	if s.armed.Load() && s.draw(2*s.often) == 0 {
		return io.EOF
	}
	err := s.ClientStream.RecvMsg(m)
	s.act(s.Context())
	return err
}

func (s *rudeStream) SendMsg(m any) error {
	s.act(s.Context())
	err := s.ClientStream.SendMsg(m)
	s.act(s.Context())
	return err
}

func (s *rudeStream) CloseSend() error {
	s.act(s.Context())
	err := s.ClientStream.CloseSend()
	s.act(s.Context())
	return err
}

// alone runs f on a goroutine of its own, which it may end.
func alone(f func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() { _ = recover() }() // it is the interceptor's
		f()
	}()
	<-ended
}

// Whatever interceptors do, and wherever: what a call says of its change is true, rows are
// all there or there is an error, and the pool is as good as new afterwards.
func TestWhateverInterceptorsDo(t *testing.T) {
	programs := uint64(20)
	if os.Getenv("STRESS") != "" {
		programs = 1500
	}
	for seed := range programs {
		d := &rude{rng: rand.New(rand.NewPCG(seed, 7)), often: 3 + int(seed%5)*6}
		profile := []testserver.Profile{testserver.Strict(), testserver.SwanLake()}[seed%2]
		profile.Endpoints = 1 + int(seed/2%2)*2
		profile.RoamingTickets = profile.RoamingTickets && profile.Endpoints == 1
		cfg := Config{MaxSize: 2, MinIdle: -1, DialOptions: d.options()}
		inBubble(t, profile, cfg, func(r *rig) {
			r.exec("CREATE TABLE " + r.bulkTable() + " (a BIGINT)")
			told := map[string]error{} // what the calls said, by their row
			n := 0
			next := func() string {
				n++
				return strconv.Itoa(n)
			}
			rng := rand.New(rand.NewPCG(seed, 8))
			d.armed.Store(true)
			for range 12 {
				what, limit := rng.IntN(6), time.Duration(1+rng.IntN(4000))*ms
				ctx, stop := context.WithTimeout(r.Context(), limit)
				alone(func() { rudeCall(ctx, r, what, next, told) })
				stop()
			}
			d.armed.Store(false)
			time.Sleep(time.Hour)
			rows := map[string]int{}
			all, err := r.pool.Query(r.Context(), "SELECT * FROM "+r.bulkTable())
			require.NoError(r, err)
			defer all.Release()
			for all.Next() {
				for i := range int(all.RecordBatch().NumRows()) {
					rows[all.RecordBatch().Column(0).ValueStr(i)]++
				}
			}
			require.NoError(r, all.Err())
			for k, err := range told {
				stored, say := rows[k], fmt.Sprintf("seed %d on %s: row %s, told %v", seed, profile.Name, k, err)
				switch {
				case err == nil:
					require.Equal(r, 1, stored, say)
				case SafeToRetry(err), errors.Is(err, ErrTxAborted) && !errors.Is(err, ErrCommitUnknown):
					require.Zero(r, stored, say)
				default:
					require.LessOrEqual(r, stored, 1, say)
				}
			}
		})
	}
}

var errExited = errors.New("the interceptor has ended the call")

// rudeCall makes a call and records what it says of each of its rows.
func rudeCall(ctx context.Context, r *rig, what int, next func() string, told map[string]error) {
	insert := func(k string) string { return "INSERT INTO " + r.bulkTable() + " VALUES (" + k + ")" }
	k := next()
	switch told[k] = errExited; what {
	case 0:
		_, told[k] = r.pool.Update(ctx, insert(k))
	case 1: // of several messages
		first, _ := strconv.ParseInt(k, 10, 64)
		rows := ints("1", first)
		defer rows.Release()
		_, told[k] = r.pool.UpdateWithRecordBatch(ctx, "INSERT INTO "+r.bulkTable()+" VALUES (?)", rows)
	case 2:
		delete(told, k)
		rows := int64(0)
		res, err := r.pool.Query(ctx, "SELECT * FROM generate(10, 2)")
		if err != nil {
			return
		}
		defer res.Release()
		for res.Next() {
			rows += res.RecordBatch().NumRows()
		}
		if res.Err() == nil && rows != 10 {
			r.Errorf("%d rows and no error", rows)
		}
	case 3:
		delete(told, k)
		_ = drained(r.pool.Query(ctx, "SELECT sleep('10s')")) // it is cut
	case 4:
		told[k] = r.pool.InTx(ctx, TxOptions{}, func(ctx context.Context, tx *Tx) error {
			_, err := tx.Update(ctx, insert(k))
			return err
		})
	case 5:
		delete(told, k)
		other := next()
		told[other] = errExited
		s, err := r.pool.AcquireSession(ctx)
		if err != nil {
			delete(told, other)
			return
		}
		defer func() { _ = s.Close() }()
		_, _ = s.Update(ctx, "SET colour = 'red'")
		_, told[other] = s.Update(ctx, insert(other))
	}
}
