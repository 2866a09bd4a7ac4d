package grpcconn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/internal/memnet"
)

// bytesCodec has gRPC's own client and server send messages as they are.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "bytes" }
func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}
func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// plan is what a server does with a call, of which the client knows.
type plan struct {
	header, trailer   metadata.MD
	flushHeader       bool
	replies, requests []int // their sizes
	readFirst         int   // requests that are read before anything is answered
	code              codes.Code
	text              string
	cancelAfter       int  // replies after which the client gives up; -1: never
	deadline          bool // the server goes on until the client's deadline
}

// deadline is that of plans which have one. What is to come before it has come by then.
const deadline = time.Second

func randomPlan(r *rand.Rand) plan {
	md := func(name string) metadata.MD {
		m := metadata.MD{}
		for i := range r.IntN(3) {
			m.Append(name+strconv.Itoa(i), string(bytes.Repeat([]byte{'v'}, r.IntN(40)<<r.IntN(11))))
			if r.IntN(3) == 0 {
				m.Append(name+strconv.Itoa(i)+"-bin", string([]byte{byte(r.Uint32()), 0, 255}[:r.IntN(4)]))
			}
		}
		return m
	}
	sizes := func() []int {
		out := make([]int, r.IntN(6))
		for i := range out {
			out[i] = r.IntN(1 << r.IntN(19))
			if r.IntN(40) == 0 {
				out[i] = r.IntN(1 << 22)
			}
		}
		return out
	}
	p := plan{header: md("h"), trailer: md("t"), flushHeader: r.IntN(2) == 0, replies: sizes(), requests: sizes(), cancelAfter: -1}
	p.readFirst = r.IntN(len(p.requests) + 1)
	if r.IntN(3) == 0 {
		p.code, p.text = codes.Code(1+r.IntN(16)), []string{"", "plain", "per cent % and ünïcode\n", "100%"}[r.IntN(4)]
	}
	switch r.IntN(10) {
	case 0, 1:
		p.cancelAfter = r.IntN(len(p.replies) + 1)
	case 2:
		p.deadline = true
	}
	return p
}

// serve is the server's side of a plan.
func (p plan) serve(s grpc.ServerStream) error {
	if err := s.SetHeader(p.header); err != nil {
		return err
	}
	s.SetTrailer(p.trailer)
	if p.flushHeader {
		if err := s.SendHeader(nil); err != nil {
			return err
		}
	}
	requests := 0
	read := func() error {
		var m []byte
		if err := s.RecvMsg(&m); err != nil {
			return err
		}
		if !bytes.Equal(m, requestOf(requests, p.requests[requests])) {
			return status.Errorf(codes.DataLoss, "request %d is another", requests)
		}
		requests++
		return nil
	}
	for range p.readFirst {
		if err := read(); err != nil {
			return err
		}
	}
	for i, size := range p.replies {
		reply := bytes.Repeat([]byte{byte(i)}, size)
		if err := s.SendMsg(&reply); err != nil {
			return err
		}
	}
	if p.deadline {
		<-s.Context().Done()
		return status.FromContextError(s.Context().Err()).Err()
	}
	if p.code != codes.OK {
		return status.Error(p.code, p.text)
	}
	for {
		if err := read(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// requestOf is the request of a number: no two parts of it are alike.
func requestOf(number, size int) []byte {
	request := make([]byte, size)
	for i := range request {
		request[i] = byte(number + i + i/251)
	}
	return request
}

// inPieces is a message in one piece or several, of which some are empty.
func inPieces(message []byte) (data []byte, rest [][]byte) {
	if len(message)%2 == 0 {
		return message, nil
	}
	third := len(message) / 3
	return message[:third], [][]byte{nil, message[third : 2*third], {}, message[2*third:]}
}

// outcome is what a client has seen of a plan.
type outcome struct {
	Replies         []string
	Header, Trailer metadata.MD
	Code            codes.Code
	Text            string
}

// run is the client's side. The sender and the receiver run beside each other.
func (p plan) run(ctx context.Context, cc grpc.ClientConnInterface) outcome {
	ctx, stop := context.WithCancel(ctx)
	if p.deadline {
		ctx, stop = context.WithTimeout(ctx, deadline)
	}
	defer stop()
	s, err := cc.NewStream(ctx, both, "/s/m", grpc.ForceCodecV2(bytesCodec{}))
	if err != nil {
		return outcome{Code: status.Code(err), Text: err.Error()}
	}
	var sending sync.WaitGroup
	sending.Go(func() {
		for i, size := range p.requests {
			request := requestOf(i, size)
			if s.SendMsg(&request) != nil {
				return
			}
		}
		_ = s.CloseSend()
	})
	var o outcome
	for {
		if len(o.Replies) == p.cancelAfter {
			stop()
		}
		var m []byte
		if err = s.RecvMsg(&m); err != nil {
			break
		}
		o.Replies = append(o.Replies, fmt.Sprintf("%d of %d", len(m), len(o.Replies)))
		if len(m) > 0 && !bytes.Equal(m, bytes.Repeat(m[:1], len(m))) {
			o.Replies = append(o.Replies, "mixed up")
		}
	}
	if !errors.Is(err, io.EOF) {
		o.Code, o.Text = status.Code(err), status.Convert(err).Message()
	}
	if p.cancelAfter >= 0 || p.deadline { // either side may have seen the deadline first
		o.Text, o.Header, o.Trailer = "", nil, nil
	} else {
		o.Header, _ = s.Header()
		o.Trailer = s.Trailer()
		for _, md := range []*metadata.MD{&o.Header, &o.Trailer} {
			if delete(*md, "content-type"); len(*md) == 0 { // gRPC keeps it among them
				*md = nil
			}
		}
	}
	sending.Wait()
	return o
}

// TestLikeGRPCsOwnClient runs random calls by this client and by gRPC's own against gRPC's
// server: many at once, over one connection each, with windows that they fill.
func TestLikeGRPCsOwnClient(t *testing.T) {
	rounds := 30
	if d, err := time.ParseDuration(os.Getenv("STRESS")); err == nil {
		rounds = 20 * int(d.Seconds())
	}
	for seed := range rounds {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 1))
			plans := make([]plan, 1+r.IntN(20))
			for i := range plans {
				plans[i] = randomPlan(r)
			}
			l := memnet.New("server:1")
			streams, goodbye := 1+r.IntN(8), r.IntN(3) == 0
			if goodbye {
				streams = len(plans) // a call that had to wait would find no server, or gRPC's client another
			}
			server := grpc.NewServer(grpc.ForceServerCodecV2(bytesCodec{}), grpc.MaxConcurrentStreams(uint32(streams)),
				grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
					md, _ := metadata.FromIncomingContext(s.Context())
					i, err := strconv.Atoi(md.Get("plan")[0])
					if err != nil {
						return err
					}
					return plans[i].serve(s)
				}))
			var serving sync.WaitGroup
			serving.Go(func() { _ = server.Serve(l) })
			defer serving.Wait()
			defer server.Stop()

			raw, err := l.Dial(t.Context(), "")
			require.NoError(t, err)
			cfg := testConfig()
			cfg.MaxMessage = 1 << 22
			if r.IntN(2) == 0 {
				cfg.StreamWindow, cfg.ConnWindow = 4<<20, 16<<20
			}
			cfg.Marshal = func(_ []byte, v any) ([]byte, [][]byte, error) {
				data, rest := inPieces(*v.(*[]byte))
				return data, rest, nil
			}
			ours, err := New(t.Context(), raw, cfg)
			require.NoError(t, err)
			defer ours.Close(time.Second)
			theirs, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.Dial(ctx, "") }))
			require.NoError(t, err)
			defer func() { _ = theirs.Close() }()

			var running sync.WaitGroup
			got, want := make([]outcome, len(plans)), make([]outcome, len(plans))
			for i, p := range plans {
				ctx := metadata.AppendToOutgoingContext(t.Context(), "plan", strconv.Itoa(i))
				running.Go(func() { got[i] = p.run(ctx, ours) })
				running.Go(func() { want[i] = p.run(ctx, theirs) })
			}
			if goodbye {
				running.Go(func() {
					time.Sleep(deadline / 2) // those with a deadline are under way
					server.GracefulStop()
				})
			}
			running.Wait()
			for i, p := range plans {
				if p.cancelAfter >= 0 { // how much had come by then, and whether the end had, is chance
					require.True(t, slices.Contains([]codes.Code{codes.Canceled, p.code}, got[i].Code), "seed %d: %+v: %+v", seed, p, got[i])
					continue
				}
				if p.deadline { // how much had come, where it had to wait for other calls, is chance
					require.Equal(t, codes.DeadlineExceeded, got[i].Code, "seed %d: %+v: %+v", seed, p, got[i])
					continue
				}
				require.Equal(t, want[i], got[i], "seed %d: %.300v", seed, p)
			}
			synctest.Wait()
			ours.mu.Lock()
			defer ours.mu.Unlock()
			require.Empty(t, ours.mu.streams)
			if goodbye {
				require.ErrorContains(t, ours.mu.err, "GOAWAY")
			}
		})
	}
}

// Pings are no more than a server takes that has set nothing, however calls come and go, or are given up.
func TestPingsAreWhatServersTake(t *testing.T) {
	for seed := range 10 {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 5))
			l := memnet.New("server:1")
			server := grpc.NewServer(grpc.ForceServerCodecV2(bytesCodec{}), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
				var m []byte
				if err := s.RecvMsg(&m); err != nil {
					return err
				}
				select {
				case <-time.After(time.Duration(len(m)) * time.Second):
				case <-s.Context().Done():
				}
				return s.SendMsg(&m)
			}))
			var serving sync.WaitGroup
			serving.Go(func() { _ = server.Serve(l) })
			defer serving.Wait()
			defer server.Stop()
			raw, err := l.Dial(t.Context(), "")
			require.NoError(t, err)
			cfg := testConfig()
			cfg.Keepalive, cfg.KeepaliveTimeout = 5*time.Minute+20*time.Second, 20*time.Second
			c, err := New(t.Context(), raw, cfg)
			require.NoError(t, err)
			defer c.Close(time.Second)
			var calls sync.WaitGroup
			for range 1 + r.IntN(3) {
				r := rand.New(rand.NewPCG(r.Uint64(), 5))
				calls.Go(func() {
					for range 20 {
						time.Sleep(time.Duration(r.IntN(600)) * time.Second)
						ctx, stop := t.Context(), func() {}
						if r.IntN(2) == 0 { // given up, for the most part
							ctx, stop = context.WithTimeout(ctx, time.Duration(1+r.IntN(900))*time.Second)
						}
						err := c.Invoke(ctx, "/s/m", make([]byte, r.IntN(3*3600)), &[]byte{})
						stop()
						if err != nil && ctx.Err() == nil {
							t.Errorf("seed %d: %v", seed, err)
							return
						}
					}
				})
			}
			calls.Wait()
		})
	}
}
