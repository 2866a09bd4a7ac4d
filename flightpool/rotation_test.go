package flightpool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/testserver"
)

// rotation is a server that gives another token with its replies, and takes the last one alone.
// The session stays bound to the token of the handshake.
type rotation struct {
	trailer bool // the token comes with the end of a reply, not with its beginning
	every   int  // RPCs, of which one brings a token

	mu    sync.Mutex
	n     int
	last  map[string]int // the serial number of each session's token
	given int
	peers map[string]string // at which its token came first
	log   []string
}

// enter is what the server sees in place of ctx, and what it does when it has answered.
func (o *rotation) enter(ctx context.Context, method string, send func(metadata.MD) error) (context.Context, func(error), error) {
	md, _ := metadata.FromIncomingContext(ctx)
	token, ok := "", false
	if values := md.Get("authorization"); len(values) > 0 {
		token, ok = strings.CutPrefix(values[0], "Bearer ")
	}
	if !ok {
		return ctx, func(error) {}, nil
	}
	first, serial, _ := strings.Cut(token, ".")
	o.mu.Lock()
	defer o.mu.Unlock()
	o.log = append(o.log, method+" "+serial)
	if want := o.last[first]; serial == "" && want > 0 || serial != "" && serial != fmt.Sprint(want) {
		return nil, nil, status.Errorf(codes.Unauthenticated, "token %q of %s is not the last, which is %d", serial, method, want)
	}
	md = md.Copy()
	md.Set("authorization", "Bearer "+first)
	ctx = metadata.NewIncomingContext(ctx, md)
	if p, ok := peer.FromContext(ctx); ok {
		if o.peers[first] == "" {
			o.peers[first] = p.Addr.String()
		}
		if o.peers[first] != p.Addr.String() {
			return ctx, func(error) {}, nil
		}
	}
	o.n++
	if o.n%o.every != 0 {
		return ctx, func(error) {}, nil
	}
	renew := func() {
		o.last[first]++
		o.given++
		_ = send(metadata.Pairs("authorization", fmt.Sprintf("Bearer %s.%d", first, o.last[first])))
	}
	if !o.trailer {
		renew()
		return ctx, func(error) {}, nil
	}
	return ctx, func(err error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if err == nil && ctx.Err() == nil {
			renew()
		}
	}, nil
}

type rotatedStream struct {
	grpc.ServerStream
	ctx context.Context // what the server sees
}

func (s *rotatedStream) Context() context.Context { return s.ctx }

func (o *rotation) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			seen, behind, err := o.enter(ctx, info.FullMethod, func(md metadata.MD) error {
				if o.trailer {
					return grpc.SetTrailer(ctx, md)
				}
				return grpc.SetHeader(ctx, md)
			})
			if err != nil {
				return nil, err
			}
			reply, err := handle(seen, req)
			behind(err)
			return reply, err
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			seen, behind, err := o.enter(stream.Context(), info.FullMethod, func(md metadata.MD) error {
				if o.trailer {
					stream.SetTrailer(md)
					return nil
				}
				return stream.SetHeader(md)
			})
			if err != nil {
				return err
			}
			err = handle(srv, &rotatedStream{stream, seen})
			behind(err)
			return err
		}),
	}
}

// Whichever reply of the server brings another token, with its beginning or its end: the next call presents it, so
// that nothing fails, and what was set, prepared and begun in the session is there.
func TestATokenMayBeRenewedWithAnyReply(t *testing.T) {
	for _, profile := range []testserver.Profile{testserver.Strict(), testserver.GizmoSQL(), testserver.Dremio()} {
		for _, cfgName := range slices.Sorted(maps.Keys(sweepConfigs)) {
			for _, trailer := range []bool{false, true} {
				for _, every := range []int{1, 2, 3, 7} {
					if !sampled(fmt.Sprint(profile.Name, cfgName, trailer, every), 16) {
						continue
					}
					o := (&rotation{trailer: trailer, every: every}).anew()
					cfg := Config{MinIdle: 1, MaxSize: 2, Auth: BasicAuth("u", "p")}
					sweepConfigs[cfgName](&cfg)
					inBubbleOn(t, testserver.Options{Profile: profile, Users: map[string]string{"u": "p"}, GRPC: o.options()}, cfg, func(r *rig) {
						s := &sweep{rig: r, e: &ending{}, said: map[int]error{}}
						r.exec("CREATE TABLE memory.t (k BIGINT)")
						r.exec("CREATE SCHEMA other")
						for _, step := range slices.Sorted(maps.Keys(sweepSteps)) {
							if step == "tx rolled back" {
								continue // the rows that it leaves are cut, and the token at their end is lost
							}
							err := sweepSteps[step](r.Context(), s)
							var e *Error
							if err != nil && (!errors.As(err, &e) || e.Fault != FaultUnsupported) {
								t.Errorf("%s, %s, trailer %t, every %d, %s: %v", profile.Name, cfgName, trailer, every, step, err)
							}
						}
						s.count()
						given, log := o.seen()
						if len(s.broken) > 0 || given == 0 {
							t.Errorf("%s, %s, trailer %t, every %d: %d given, %q\n%q", profile.Name, cfgName, trailer, every, given, s.broken, log)
						}
					})
				}
			}
		}
	}
}

// Nor is anything wrong where the reply that brings a token is not read, because its caller has gone: a connection whose
// token is lost serves nobody.
func TestAContextMayEndInARenewal(t *testing.T) {
	seed := rand.Uint64()
	if n, err := strconv.ParseUint(os.Getenv("PROVE_SEED"), 10, 64); err == nil {
		seed = n
	}
	limit, _ := time.ParseDuration(os.Getenv("PROVE"))
	r, began := rand.New(rand.NewPCG(seed, 0)), time.Now()
	steps, cfgs := slices.Sorted(maps.Keys(sweepSteps)), slices.Sorted(maps.Keys(sweepConfigs))
	profiles := []func() testserver.Profile{testserver.Strict, testserver.GizmoSQL}
	pick := func(of []string) string { return of[r.IntN(len(of))] }
	for tried := 0; tried < 8 && limit == 0 || time.Since(began) < limit; tried++ {
		tokens := rotation{trailer: r.IntN(2) == 0, every: 1 + r.IntN(5)}
		c := sweepCase{step: pick(steps), cfg: pick(cfgs), profile: profiles[r.IntN(len(profiles))], warm: r.IntN(2) == 0}
		c.tokens = tokens.anew()
		_, moments := c.perform(t)
		c.at, c.way, c.how = 1+r.IntN(max(moments, 1)), pick([]string{"at once", "slow"}), pick([]string{"cancel", "cause", "deadline", "close"})
		c.tokens = tokens.anew()
		if s, _ := c.perform(t); len(s.broken) > 0 {
			t.Errorf("PROVE_SEED=%d, %s, trailer %t, every %d: %s\n%q\n%q", seed, c, tokens.trailer, tokens.every, strings.Join(s.broken, "; "), s.e.log, c.tokens.log)
		}
	}
}

func (o *rotation) seen() (given int, log []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.given, slices.Clone(o.log)
}

func (o *rotation) anew() *rotation {
	return &rotation{trailer: o.trailer, every: o.every, last: map[string]int{}, peers: map[string]string{}}
}

// What the pool asks a session itself is read to its end, also where it is no answer: what comes with the end of a reply
// that is cut, such as another token, is lost.
func TestWhatIsAskedOfASessionIsReadToItsEnd(t *testing.T) {
	var cut atomic.Int32
	awaitsTheEnd := grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		err := handle(srv, stream)
		select {
		case <-stream.Context().Done():
			cut.Add(1)
		case <-time.After(10 * ms):
		}
		return err
	})
	inBubbleOn(t, testserver.Options{Profile: testserver.Strict(), GRPC: []grpc.ServerOption{awaitsTheEnd}}, Config{MaxSize: 1}, func(r *rig) {
		r.exec("CREATE SCHEMA other")
		s := r.session()
		_, err := s.Update(r.Context(), "USE other") // the search path is NULL there
		require.NoError(r, err)
		require.NoError(r, s.Close())
		require.Zero(r, cut.Load())
	})
}
