package grpcconn

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// An RPC that fails for want of its connection finds the reason told (Config.OnEnd), also while
// another goroutine is about to tell it.
func TestAnRPCThatBeginsAtTheEndFindsTheReasonTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told atomic.Int32
		first, release := make(chan struct{}), make(chan struct{})
		var called atomic.Bool
		cfg := testConfig()
		cfg.OnEnd = func(error) {
			if !called.Swap(true) {
				close(first)
				<-release
			}
			told.Add(1)
		}
		c, _ := pair(t, cfg)
		var closing sync.WaitGroup
		closing.Go(func() { c.Close(0) })
		defer closing.Wait()
		<-first
		defer close(release)
		ctx, j := observed(t.Context())
		_, err := c.NewStream(ctx, &grpc.StreamDesc{}, "/x/y")
		require.ErrorContains(t, err, errClosed.Error())
		require.Positive(t, told.Load(), "the RPC has failed before the reason was told")
		require.NotContains(t, j.heard(), "sent")
	})
}

// toldJournal notes how often the reason was told when the RPC ended.
type toldJournal struct {
	journal
	told *atomic.Int32
	then int32
}

func (j *toldJournal) End(err error) {
	j.then = j.told.Load()
	j.journal.End(err)
}

// A GOAWAY that ends one RPC and lets another go on is told before the one hears of it.
func TestAGoAwayIsToldBeforeTheRPCsThatItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told atomic.Int32
		j := &toldJournal{told: &told}
		cfg := testConfig()
		observe := cfg.Observe
		cfg.Observe = func(ctx context.Context) Observer {
			if ctx.Value(journalKey{}) == "told" {
				return j
			}
			return observe(ctx)
		}
		cfg.OnEnd = func(reason error) {
			if !errors.Is(reason, errClosed) {
				told.Add(1)
			}
		}
		c, p := pair(t, cfg)
		goesOn, err := c.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/x/y")
		require.NoError(t, err)
		require.NoError(t, goesOn.SendMsg([]byte("a")))
		ended, err := c.NewStream(context.WithValue(t.Context(), journalKey{}, "told"), &grpc.StreamDesc{ServerStreams: true}, "/x/y")
		require.NoError(t, err)
		require.NoError(t, ended.SendMsg([]byte("b")))
		next[*http2.MetaHeadersFrame](p)
		go p.drain()
		require.NoError(t, p.framer.WriteGoAway(1, http2.ErrCodeNo, nil))
		var m []byte
		require.Error(t, ended.RecvMsg(&m))
		require.Contains(t, j.heard(), "disowned")
		require.Equal(t, int32(1), j.then)
		p.begin(1)
		p.message(1, []byte("whole"), 3)
		p.end(1, "0")
		require.NoError(t, goesOn.RecvMsg(&m), "it goes on")
		require.Equal(t, "whole", string(m))
	})
}

// Messages that are next to nothing on the wire, and that nobody reads, are bounded by their number.
func TestManyTinyMessagesThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.StreamWindow, cfg.ConnWindow = 1<<20, 1<<20
		c, p := pair(t, cfg)
		receiver := &countingReceiver{}
		s, err := c.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/x/y", ReceiveBy{Receiver: receiver})
		require.NoError(t, err)
		require.NoError(t, s.SendMsg([]byte("a")))
		go p.drain()
		p.begin(1)
		tiny := make([]byte, 0, 1<<14)
		for len(tiny)+prefixLen <= cap(tiny) {
			tiny = append(tiny, make([]byte, prefixLen)...)
		}
		for left := cfg.StreamWindow; left >= len(tiny); left -= len(tiny) {
			require.NoError(t, p.framer.WriteData(1, false, tiny))
		}
		synctest.Wait()
		require.LessOrEqual(t, receiver.made, cfg.StreamWindow/64+len(tiny))
		var m any
		for err = nil; err == nil; {
			err = s.RecvMsg(&m)
		}
		require.ErrorContains(t, err, "messages")
		require.NoError(t, c.Err(), "the connection goes on")
	})
}

type countingReceiver struct{ made int }

func (*countingReceiver) Start(int)              {}
func (*countingReceiver) Write([]byte)           {}
func (r *countingReceiver) Finish() (any, error) { r.made++; return r.made, nil }
func (*countingReceiver) Deliver(m, into any) error {
	*into.(*any) = m
	return nil
}

// RPCs that come and go on a connection whose peer does not read wait for room, unsent, as messages do.
func TestCallsToAPeerThatDoesNotReadFillNoMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := pair(t, testConfig())
		synctest.Wait()
		p.conn.(interface{ Freeze() }).Freeze()
		unsent := 0
		for i := range 5000 {
			ctx, j := observed(t.Context())
			ctx, stop := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, "x", strconv.Itoa(i)+strings.Repeat("x", 1000)), time.Millisecond)
			var m []byte
			err := c.Invoke(ctx, "/x/y", []byte("a"), &m)
			require.Equal(t, codes.DeadlineExceeded, status.Code(err))
			if !slices.Contains(j.heard(), "sent") {
				unsent++
			}
			stop()
		}
		c.mu.Lock()
		waiting := len(c.mu.out)
		c.mu.Unlock()
		require.LessOrEqual(t, waiting, 3*maxOut)
		require.Positive(t, unsent)
	})
}

// Who waits for room, unsent, on a connection whose peer does not read is told once that is found,
// also where no RPC is under way any more.
func TestWhoWaitsForRoomIsNotKeptByASilentPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.Keepalive, cfg.KeepaliveTimeout = time.Minute, 10*time.Second
		c, p := pair(t, cfg)
		synctest.Wait()
		p.conn.(interface{ Freeze() }).Freeze()
		start := time.Now()
		for i := 0; ; i++ {
			ctx, j := observed(t.Context())
			ctx, stop := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, "x", strconv.Itoa(i)+strings.Repeat("x", 1000)), time.Millisecond)
			_ = c.Invoke(ctx, "/x/y", []byte("a"), &[]byte{})
			stop()
			if !slices.Contains(j.heard(), "sent") {
				break
			}
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		require.Equal(t, codes.Unavailable, status.Code(c.Invoke(ctx, "/x/y", []byte("a"), &[]byte{})))
		require.ErrorContains(t, c.Err(), "keepalive")
		require.Less(t, time.Since(start), 2*time.Minute)
	})
}

// The first message of an RPC, as its headers, does not wait behind the messages of others: who sends
// much takes whatever room there is, again and again.
func TestAFirstMessageDoesNotWaitBehindABulkLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := pair(t, testConfig(), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
		require.NoError(t, p.framer.WriteWindowUpdate(0, 1<<30))
		synctest.Wait()
		p.conn.(interface{ Freeze() }).Freeze()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		for range 3 { // the writer has what the first has sent, and the second takes the room
			bulk, err := c.NewStream(ctx, both, "/x/y")
			require.NoError(t, err)
			go func() {
				for err := error(nil); err == nil; {
					err = bulk.SendMsg(make([]byte, 1<<20))
				}
			}()
			synctest.Wait()
		}
		start := time.Now()
		ctx, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		small, err := c.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/x/y")
		require.NoError(t, err)
		require.NoError(t, small.SendMsg([]byte("a")))
		require.Zero(t, time.Since(start))
		c.mu.Lock()
		defer c.mu.Unlock()
		require.LessOrEqual(t, len(c.mu.out), maxOutBegin)
	})
}

// Marshal can tell by buf whether what it gives is used again.
func TestMemoryIsUsedAgainOnlyWhereSeveralMessagesAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var given []bool
		cfg := testConfig()
		marshal := cfg.Marshal
		cfg.Marshal = func(buf []byte, m any) ([]byte, [][]byte, error) {
			given = append(given, buf != nil)
			return marshal(buf, m)
		}
		c, p := pair(t, cfg)
		go p.drain()
		for _, desc := range []*grpc.StreamDesc{{ServerStreams: true}, both} {
			ctx, stop := context.WithCancel(t.Context())
			s, err := c.NewStream(ctx, desc, "/x/y")
			require.NoError(t, err)
			require.NoError(t, s.SendMsg([]byte("a")))
			if desc == both {
				require.NoError(t, s.SendMsg([]byte("b")))
				require.NoError(t, s.SendMsg([]byte("c")))
			}
			stop()
		}
		require.Equal(t, []bool{false, true, true, true}, given)
	})
}

// RPCs that are begun before any of them sends do not wait for each other: their headers leave when
// there is no room for more.
func TestRPCsThatAreBegunBeforeAnyIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := pair(t, testConfig())
		go p.drain()
		for i := range 1000 {
			ctx, stop := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "x", strconv.Itoa(i)+strings.Repeat("x", 1000)), time.Minute)
			defer stop()
			_, err := c.NewStream(ctx, &grpc.StreamDesc{}, "/x/y")
			require.NoError(t, err, "%d", i)
		}
	})
}

// An RPC that waits for the end of another hears of a GOAWAY that lets the other go on.
func TestAnRPCThatWaitsHearsOfGoAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := pair(t, testConfig(), http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1})
		synctest.Wait()
		goesOn, err := c.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/x/y")
		require.NoError(t, err)
		require.NoError(t, goesOn.SendMsg([]byte("a")))
		go p.drain()
		began := time.Now()
		time.AfterFunc(time.Second, func() { _ = p.framer.WriteGoAway(1, http2.ErrCodeNo, nil) })
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		_, err = c.NewStream(ctx, &grpc.StreamDesc{}, "/x/y")
		require.ErrorContains(t, err, "GOAWAY")
		require.Equal(t, time.Second, time.Since(began))
	})
}
