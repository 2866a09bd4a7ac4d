package flightconn

import (
	"bytes"
	"io"
	"net"
	"path"
	"sync"
	"testing"
	"testing/synctest"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/memnet"
)

// refuser is a proxy before a server that ends while it is at work: it says REFUSED_STREAM of each RPC that
// has come whole, once it is told to, and NOT_FOUND before. HAProxy says so whenever its server closes the
// connection before it has answered.
type refuser struct {
	mu    sync.Mutex
	begun bool
	seen  map[string]int // RPCs since then, by name
}

func (r *refuser) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun, r.seen = true, map[string]int{}
}

func (r *refuser) count(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen[name]
}

func (r *refuser) take(name string) (refused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.begun {
		r.seen[name]++
	}
	return r.begun
}

func (r *refuser) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go r.speak(c)
	}
}

func (r *refuser) speak(c net.Conn) {
	defer func() { _ = c.Close() }()
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	framer := http2.NewFramer(c, c)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_ = framer.WriteSettings()
	names := map[uint32]string{}
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = framer.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				_ = framer.WritePing(true, f.Data)
			}
		case *http2.MetaHeadersFrame:
			names[f.StreamID] = path.Base(f.PseudoValue("path"))
		case *http2.DataFrame:
			if !f.StreamEnded() {
				continue
			}
			if r.take(names[f.StreamID]) {
				_ = framer.WriteRSTStream(f.StreamID, http2.ErrCodeRefusedStream)
				continue
			}
			var block bytes.Buffer
			e := hpack.NewEncoder(&block)
			for _, h := range []hpack.HeaderField{{Name: ":status", Value: "200"}, {Name: "content-type", Value: "application/grpc"}, {Name: "grpc-status", Value: "5"}} {
				_ = e.WriteField(h)
			}
			_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: f.StreamID, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
		}
	}
}

// What may change something is sent once, whatever a proxy says of it, and does not count as unsent.
func TestAChangeIsNotSentAgainForARefusedStream(t *testing.T) {
	for name, transport := range transports {
		for op, c := range map[string]struct {
			rpc   string
			again bool
			do    func(t *testing.T, c backend.Conn) error
		}{
			"update": {"DoPut", false, func(t *testing.T, c backend.Conn) error {
				_, err := c.Update(t.Context(), "INSERT INTO t VALUES (1)", backend.Call{})
				return err
			}},
			"another client's update": {"DoPut", false, func(t *testing.T, c backend.Conn) error {
				g, err := c.(*Conn).BeginExternal(t.Context(), "Update", nil)
				require.NoError(t, err)
				defer g.End()
				s, err := g.NewStream(&grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, servicePrefix+"DoPut")
				require.NoError(t, err)
				require.NoError(t, s.SendMsg(&pb.FlightData{}))
				require.NoError(t, s.CloseSend())
				return g.WrapError(backend.StageExecute, s.RecvMsg(&pb.PutResult{}))
			}},
			"commit": {"DoAction", false, func(t *testing.T, c backend.Conn) error { return c.EndTx(t.Context(), "tx", true) }},
			"change with rows": {"GetFlightInfo", false, func(t *testing.T, c backend.Conn) error {
				_, err := c.Query(t.Context(), "INSERT INTO t VALUES (1) RETURNING *", backend.Call{MayChange: true})
				return err
			}},
			"read": {"GetFlightInfo", true, func(t *testing.T, c backend.Conn) error {
				_, err := c.Query(t.Context(), "SELECT 1", backend.Call{})
				return err
			}},
		} {
			t.Run(name+" "+op, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l, r := memnet.New(here), &refuser{}
					defer func() { _ = l.Close() }()
					go r.serve(l)
					cfg := Config{Address: here, Dialer: l.Dial, CloseTimeout: -1}
					transport(&cfg)
					e, err := NewEndpoint(cfg)
					require.NoError(t, err)
					defer func() { require.NoError(t, e.Close()) }()
					conn, err := e.Open(t.Context())
					require.NoError(t, err)
					defer func() { _ = conn.Close() }()
					r.begin()
					err = c.do(t, conn)
					require.Equal(t, backend.FaultTransport, failure(t, err).Fault, "%v", err)
					require.Equal(t, c.again && name == "own", failure(t, err).Unsent, "%v", err) // gRPC's client does not tell of the second
					if c.again {
						require.Equal(t, 2, r.count(c.rpc))
					} else {
						require.Equal(t, 1, r.count(c.rpc))
					}
				})
			})
		}
	}
}

// A refused call ends itself alone: the client of a location is that of all connections' results.
func TestARefusedCallAtALocationEndsNoOther(t *testing.T) {
	f := &fake{info: infoOf(at(answer(int64Schema, "0"), "grpc://remote:2"))}
	inBubble(t, f, func(b *bubble) {
		l, r := memnet.New("remote:2"), &refuser{}
		defer func() { _ = l.Close() }()
		b.net["remote:2"] = l
		go r.serve(l)
		where, err := b.endpoint.cfg.resolveLocation("grpc://remote:2")
		require.NoError(b, err)
		other, err := b.endpoint.locations.acquire(b.Context(), where) // a result of another connection, whose reader pauses
		require.NoError(b, err)
		defer other.release()

		conn := b.open()
		r.begin()
		// As well: a read with parameters (rpcCall.bound), which a proxy refuses.
		_, err = conn.Query(b.Context(), "INSERT … RETURNING", backend.Call{MayChange: true})
		require.Error(b, err)
		require.Equal(b, 1, r.count("DoGet"))
		require.NotEqual(b, connectivity.Shutdown, other.cc.GetState(), "the other result has ended with it")

		r.mu.Lock()
		r.begun = false // the location answers again
		r.mu.Unlock()
		_, err = conn.Query(b.Context(), "SELECT 1", backend.Call{})
		require.Equal(b, codes.NotFound, status.Code(err), "%v", err)
	})
}
