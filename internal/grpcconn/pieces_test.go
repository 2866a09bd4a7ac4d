package grpcconn

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// piecesOf cuts a message into pieces at random, some of them empty.
func piecesOf(g *rand.Rand, message []byte) (data []byte, rest [][]byte) {
	ends := []int{0, len(message)}
	for range g.IntN(6) {
		ends = append(ends, g.IntN(len(message)+1))
	}
	slices.Sort(ends)
	for i := range len(ends) - 1 {
		rest = append(rest, message[ends[i]:ends[i+1]])
	}
	return rest[0], rest[1:]
}

// TestPiecesThroughWindowsThatChange sends messages in pieces to a peer that changes its windows and
// the length of frames in their middle, and may end the call or the connection there. What it gets
// is what was sent, within what it allows, and whoever sends overwrites each message at once.
func TestPiecesThroughWindowsThatChange(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) { piecesThroughWindows(t, rand.New(rand.NewPCG(seed, 1))) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func piecesThroughWindows(t *testing.T, g *rand.Rand) {
	sizes := []uint32{0, 1, 16383, 16384, 16385, 65535, 1 << 18}
	frames := []uint32{16384, 16385, 32768, 1<<24 - 1}
	initial := sizes[g.IntN(len(sizes))]
	cut := rand.New(rand.NewPCG(g.Uint64(), 2))
	cfg := testConfig()
	cfg.Marshal = func(_ []byte, v any) ([]byte, [][]byte, error) {
		data, rest := piecesOf(cut, v.([]byte))
		return data, rest, nil
	}
	c, p := pair(t, cfg, http2.Setting{ID: http2.SettingInitialWindowSize, Val: initial})
	s, err := c.NewStream(soon(t), both, "/s/m")
	require.NoError(t, err)
	var want []byte
	var messages [][]byte
	for i := range 1 + g.IntN(3) {
		m := requestOf(i, []int{0, 1, 16379, 16380, 50_000, 200_000}[g.IntN(6)])
		want = append(want, 0, 0, byte(len(m)>>16), byte(len(m)>>8), byte(len(m)))
		want = append(want, m...)
		messages = append(messages, m)
	}
	var sending sync.WaitGroup
	sending.Go(func() {
		for _, m := range messages {
			if s.SendMsg(m) != nil {
				return
			}
			clear(m)
		}
		_ = s.CloseSend()
	})
	q := windowPeer{peer: p, stream: s, window: int64(initial), room: initialWindow, initial: int64(initial), maxFrame: minMaxFrame}
	q.sizes, q.frames, q.endAt = sizes, frames, -1
	if g.IntN(2) == 0 {
		q.endAt = g.IntN(len(want))
	}
	q.run(g, want)
	sending.Wait()
}

// windowPeer is a server that reads a call, and knows what the client may send.
type windowPeer struct {
	*peer
	stream                grpc.ClientStream
	window, room, initial int64
	maxFrame              uint32
	sizes, frames         []uint32
	longest               uint32 // frame that it may send until it has heard of maxFrame
	lost                  int64  // of the window, of which it may not have heard
	endAt                 int    // how much is read before the call ends; -1: it does not
	got                   []byte
}

func (q *windowPeer) run(g *rand.Rand, want []byte) {
	id := uint32(1)
	for len(q.got) < len(want) {
		synctest.Wait()
		if q.endAt >= 0 && len(q.got) >= q.endAt {
			q.end(g, id)
			return
		}
		q.change(g, id)
		q.read(want)
	}
}

// change is one more setting or window, of which the client hears before it sends more.
func (q *windowPeer) change(g *rand.Rand, id uint32) {
	q.lost, q.longest = 0, q.maxFrame
	switch g.IntN(4) {
	case 0:
		v := q.sizes[g.IntN(len(q.sizes))]
		require.NoError(q, q.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: v}))
		q.lost = max(0, q.initial-int64(v))
		q.window, q.initial = q.window+int64(v)-q.initial, int64(v)
	case 1:
		q.maxFrame = q.frames[g.IntN(len(q.frames))]
		require.NoError(q, q.framer.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: q.maxFrame}))
	default:
		n := max(q.sizes[g.IntN(len(q.sizes))], 1)
		require.NoError(q, q.framer.WriteWindowUpdate(id, n))
		require.NoError(q, q.framer.WriteWindowUpdate(0, n))
		q.window, q.room = q.window+int64(n), q.room+int64(n)
	}
	require.NoError(q, q.framer.WritePing(false, [8]byte{1}))
}

// read reads what comes until the client has answered the ping, and all that it sent by then.
func (q *windowPeer) read(want []byte) {
	synctest.Wait()
	for {
		f, err := q.framer.ReadFrame()
		require.NoError(q, err)
		switch f := f.(type) {
		case *http2.DataFrame:
			n := int(f.Length)
			require.LessOrEqual(q, n, int(max(q.maxFrame, q.longest)))
			require.LessOrEqual(q, int64(n), min(q.window+q.lost, q.room))
			q.window, q.room = q.window-int64(n), q.room-int64(n)
			q.got = append(q.got, f.Data()...)
			require.Equal(q, want[:len(q.got)], q.got)
		case *http2.PingFrame:
			return
		}
	}
}

// end ends the call in its middle, in one of the ways there are.
func (q *windowPeer) end(g *rand.Rand, id uint32) {
	code := codes.Unavailable
	switch g.IntN(4) {
	case 0:
		require.NoError(q, q.framer.WriteRSTStream(id, http2.ErrCodeRefusedStream))
	case 1:
		require.NoError(q, q.framer.WriteRSTStream(id, http2.ErrCodeInternal))
		code = codes.Internal
	case 2:
		require.NoError(q, q.framer.WriteGoAway(0, http2.ErrCodeNo, nil))
	default:
		_ = q.conn.Close()
	}
	var reply []byte
	require.Equal(q, code, status.Code(q.stream.RecvMsg(&reply)))
}
