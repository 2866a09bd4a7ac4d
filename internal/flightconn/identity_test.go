package flightconn

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// jarServer answers GetFlightInfo with a cookie of the test's choice and keeps
// what it was shown.
type jarServer struct {
	mu    sync.Mutex
	set   string
	shown []string
}

func (j *jarServer) info(ctx context.Context, _ *pb.FlightDescriptor) (*pb.FlightInfo, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	md, _ := metadata.FromIncomingContext(ctx)
	j.shown = append(j.shown, strings.Join(md.Get("cookie"), "; "))
	if j.set != "" {
		_ = grpc.SetHeader(ctx, metadata.Pairs("set-cookie", j.set))
	}
	return nil, status.Error(codes.NotFound, "nothing here")
}

// ping has the server set a cookie, and returns what it was shown with that.
func (j *jarServer) ping(b *bubble, c *Conn, set string) string {
	j.mu.Lock()
	j.set = set
	j.mu.Unlock()
	require.NoError(b, c.Ping(b.Context()))
	return j.shown[len(j.shown)-1]
}

func TestEachConnectionHasACookieJarOfItsOwnThatForgets(t *testing.T) {
	j := &jarServer{}
	inBubble(t, &fake{info: j.info}, func(b *bubble) {
		one, other := b.open(), b.open()
		require.Empty(b, j.ping(b, one, "s=1; Path=/"))
		require.Equal(b, "s=1", j.ping(b, one, ""))
		require.Empty(b, j.ping(b, other, "s=2; Path=/"), "jars are not shared")
		require.Equal(b, "s=1", j.ping(b, one, "s=3; Path=/"))
		require.Equal(b, "s=3", j.ping(b, one, ""), "a cookie is replaced")
		require.Equal(b, "s=2", j.ping(b, other, ""))

		require.Equal(b, "s=3", j.ping(b, one, "s=; Path=/; Max-Age=0"))
		require.Empty(b, j.ping(b, one, ""), "deleted by Max-Age=0")
		require.Empty(b, j.ping(b, one, "t=1; Max-Age=60; Expires="+time.Now().Add(-time.Hour).UTC().Format(time.RFC1123)))
		require.Equal(b, "t=1", j.ping(b, one, ""), "Max-Age overrules Expires")
		time.Sleep(time.Minute)
		require.Empty(b, j.ping(b, one, ""), "expired")
		require.Empty(b, j.ping(b, one, "u=1; Expires="+time.Now().Add(time.Minute).UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT")))
		require.Equal(b, "u=1", j.ping(b, one, "u=; Expires=Thu, 01 Jan 1970 00:00:00 GMT"))
		require.Empty(b, j.ping(b, one, ""), "deleted by Expires")
	})
}

func TestAHeaderThatCannotBeSentIsNamedBeforeAnythingIs(t *testing.T) {
	for _, bad := range []metadata.MD{
		{"x y": {"1"}}, {"": {"1"}}, {"x:": {"1"}}, {":path": {"/"}}, {"grpc-timeout": {"1S"}}, {"Content-Type": {"x"}}, {"user-agent": {"x"}},
		{"connection": {"close"}}, {"x": {"ü"}}, {"x": {"1\r\nauthorization: Bearer x"}}, {"ümlaut": {"1"}},
	} {
		require.Error(t, CheckHeaders(bad), "%v", bad)
	}
	require.NoError(t, CheckHeaders(metadata.MD{"X-Tenant.a_1": {"any ~ text", ""}, "raw-bin": {"\x00\xff"}}))

	got := make(chan metadata.MD, 1)
	f := &fake{info: infoOf(answer(int64Schema, "0"))}
	f.get = func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error {
		md, _ := metadata.FromIncomingContext(s.Context())
		got <- md
		return sendBatches(s, 1)
	}
	inBubble(t, f, func(b *bubble) {
		got = make(chan metadata.MD, 1)
		c := b.open()
		plans := f.plans.Load()
		_, err := c.Query(b.Context(), "q", backend.Call{Headers: metadata.MD{"bad name": {"1"}}})
		require.Equal(b, backend.FaultUsage, failure(b, err).Fault)
		require.ErrorContains(b, err, `"bad name"`)
		require.Equal(b, plans, f.plans.Load())
		s, err := c.Query(b.Context(), "q", backend.Call{Headers: metadata.MD{"X-Call": {"1", "2"}, "raw-bin": {"\x00\xff"}}})
		require.NoError(b, err)
		require.Len(b, values(b, s), 1)
		md := <-got
		require.Equal(b, []string{"1", "2"}, md.Get("x-call"))
		require.Equal(b, []string{"\x00\xff"}, md.Get("raw-bin"))
		require.Equal(b, []string{"all"}, md.Get("x-every"))
	}, func(cfg *Config) { cfg.Headers = metadata.MD{"X-Every": {"all"}} })
}

func TestCompressedAnswersAreReadWhicheverWayTheyAreCompressed(t *testing.T) {
	for name, opts := range map[string][]ipc.Option{"LZ4": {ipc.WithLZ4()}, "ZSTD": {ipc.WithZstd()}, "none": nil} {
		var encoding []string
		f := &fake{info: infoOf(answer(int64Schema, "0", "1"))}
		f.get = func(k *pb.Ticket, s pb.FlightService_DoGetServer) error {
			md, _ := metadata.FromIncomingContext(s.Context())
			encoding = md.Get("grpc-accept-encoding")
			from := 50 * int(k.GetTicket()[0]-'0')
			return sendValues(s, from, from+50, opts...)
		}
		inBubble(t, f, func(b *bubble) {
			s, err := b.open().Query(b.Context(), "q", backend.Call{})
			require.NoError(b, err)
			require.Equal(b, upTo(100), values(b, s), name)
			require.Contains(b, strings.Join(encoding, ","), gzip.Name)
		}, func(cfg *Config) {
			cfg.DialOptions = []grpc.DialOption{grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name))}
		})
	}
}

// A server may compress whatever it sends, asked or not. Only gRPC's own client reads that, and only where the program has what it
// is compressed by.
func TestWhoReadsWhatAServerCompressesUnasked(t *testing.T) {
	for client, options := range map[string][]grpc.DialOption{"ours": nil, "gRPC's": {grpc.WithUserAgent("gRPC's")}} {
		f := &fake{info: infoOf(answer(int64Schema, "0"))}
		f.get = func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error { return sendBatches(s, 2) }
		inBubble(t, f, func(b *bubble) {
			b.net.serve(b, here, f, grpc.RPCCompressor(grpc.NewGZIPCompressor())) //nolint:staticcheck // whatever its clients take
			s, err := b.open().Query(b.Context(), "q", backend.Call{})
			if options == nil {
				require.ErrorContains(b, err, "DialOptions", "what reads it is named")
				return
			}
			require.NoError(b, err, client)
			require.Equal(b, upTo(2), values(b, s), client)
		}, func(cfg *Config) { cfg.DialOptions = options })
	}
}

// A server passes on what its own callers' connections take, which is nothing to ours: it reads no message that is
// compressed as a whole.
func TestWhatOthersConnectionsTakeIsNotPassedOn(t *testing.T) {
	var got metadata.MD
	f := &fake{info: infoOf(answer(int64Schema, "0"))}
	f.get = func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error {
		got, _ = metadata.FromIncomingContext(s.Context())
		_ = grpc.SetSendCompressor(s.Context(), gzip.Name) // for who takes it
		return sendBatches(s, 2)
	}
	inBubble(t, f, func(b *bubble) {
		theirs := metadata.Pairs("grpc-accept-encoding", "identity, gzip", "content-length", "5", "traceparent", "kept")
		s, err := b.open().Query(metadata.NewOutgoingContext(b.Context(), theirs), "q", backend.Call{})
		require.NoError(b, err)
		require.Equal(b, upTo(2), values(b, s))
		require.Empty(b, got.Get("grpc-accept-encoding"))
		require.Empty(b, got.Get("content-length"))
		require.Equal(b, []string{"kept"}, got.Get("traceparent"))
	})
}

// Which change of a server's cookies tells of another session.
func TestASessionIsReplacedWhenTheCookieThatNamesItIs(t *testing.T) {
	past, future := time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat), time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	for name, c := range map[string]struct {
		before, after []string
		unproven      bool
		replaced      bool
	}{
		"the same":                     {before: []string{"session=1"}, after: []string{"session=1; Path=/"}},
		"another":                      {before: []string{"session=1"}, after: []string{"session=2"}, replaced: true},
		"another, and a second":        {before: []string{"session=1", "session-b=1"}, after: []string{"session=2", "session-b=1"}, replaced: true},
		"none before":                  {after: []string{"session=1"}},
		"another, before it was there": {before: []string{"session=1"}, after: []string{"session=2"}, unproven: true},
		"deleted by Max-Age":           {before: []string{"session=1"}, after: []string{"session=1; Max-Age=0"}, replaced: true},
		"deleted by Max-Age below 0":   {before: []string{"session=1"}, after: []string{"session=1; Max-Age=-1"}, replaced: true},
		"deleted by Expires":           {before: []string{"session=1"}, after: []string{"session=1; Expires=" + past}, replaced: true},
		"kept by Expires":              {before: []string{"session=1"}, after: []string{"session=1; Expires=" + future}},
		"kept by Max-Age":              {before: []string{"session=1"}, after: []string{"session=1; Max-Age=60; Expires=" + past}},
		"deleted before":               {before: []string{"session=1; Max-Age=0"}, after: []string{"session=1"}},
		"in its cookie":                {before: []string{"arrow_flight_session=1"}, after: []string{"arrow_flight_session=2"}},
		"in its cookie, empty":         {before: []string{"arrow_flight_session=1"}, after: []string{"arrow_flight_session="}},
		"in its cookie, deleted":       {before: []string{"arrow_flight_session="}, after: []string{"arrow_flight_session=; Max-Age=0"}, replaced: true},
		"no session's":                 {before: []string{"balancer=1"}, after: []string{"balancer=2"}},
	} {
		id := &identity{}
		require.False(t, id.sessionReplaced(c.before), name)
		if !c.unproven {
			id.markEstablished()
		}
		require.Equal(t, c.replaced, id.sessionReplaced(c.after), name)
	}
}

// What is presented is the connection's own, also when it has nothing.
func TestAConnectionWithoutACredentialPresentsNone(t *testing.T) {
	var got metadata.MD
	f := &fake{info: func(ctx context.Context, _ *pb.FlightDescriptor) (*pb.FlightInfo, error) {
		got, _ = metadata.FromIncomingContext(ctx)
		_ = grpc.SetHeader(ctx, metadata.Pairs("authorization", "Bearer the-servers"))
		return nil, status.Error(codes.NotFound, "no")
	}}
	inBubble(t, f, func(b *bubble) {
		c := b.open()
		foreign := metadata.NewOutgoingContext(b.Context(), metadata.Pairs("authorization", "Bearer foreign", "cookie", "a=b"))
		for range 2 {
			require.NoError(b, c.Ping(foreign))
			require.Empty(b, got.Get("authorization"))
			require.Empty(b, got.Get("cookie"))
		}
	})
}

func TestOfSeveralTokensTheFirstIsTaken(t *testing.T) {
	var got metadata.MD
	f := &fake{info: func(ctx context.Context, _ *pb.FlightDescriptor) (*pb.FlightInfo, error) {
		got, _ = metadata.FromIncomingContext(ctx)
		_ = grpc.SetHeader(ctx, metadata.Pairs("authorization", "", "authorization", "Bearer first", "authorization", "Bearer second"))
		return nil, status.Error(codes.NotFound, "no")
	}}
	inBubble(t, f, func(b *bubble) {
		c := b.open()
		require.NoError(b, c.Ping(b.Context()))
		require.NoError(b, c.Ping(b.Context()))
		require.Equal(b, []string{"Bearer first"}, got.Get("authorization"))
	}, func(cfg *Config) { cfg.Authorization = bearer("Bearer mine") })
}

// repliesServer gives rows with trailers of the test's choice, keeps what authorization it was shown last, and
// gives another with the next answer to a ping if it is told to.
type repliesServer struct {
	mu       sync.Mutex
	trailers metadata.MD
	next     string
	shown    string
	end      chan struct{} // of the results, once it is closed
}

func (r *repliesServer) fake() *fake {
	return &fake{
		info: func(ctx context.Context, d *pb.FlightDescriptor) (*pb.FlightInfo, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			md, _ := metadata.FromIncomingContext(ctx)
			r.shown = strings.Join(md.Get("authorization"), ",")
			if r.next != "" {
				_ = grpc.SetHeader(ctx, metadata.Pairs("authorization", r.next, "set-cookie", "session=1"))
			}
			return infoOf(answer(int64Schema, "0"))(ctx, d)
		},
		get: func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error {
			r.mu.Lock()
			s.SetTrailer(r.trailers)
			end := r.end
			r.mu.Unlock()
			defer func() { <-end }()
			return sendBatches(s, 3)
		},
	}
}

// ping has the server give a token, if any, and returns the one that it was shown.
func (r *repliesServer) ping(b *bubble, c *Conn, next string) string {
	r.mu.Lock()
	r.next = next
	r.mu.Unlock()
	require.NoError(b, c.Ping(b.Context()))
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shown
}

// Which of two tokens is the later one the server knows by when it gave them, not by when somebody reads.
func TestTheTokenThatCameLastIsPresented(t *testing.T) {
	for name, transport := range transports {
		t.Run(name, func(t *testing.T) {
			r := &repliesServer{trailers: metadata.Pairs("authorization", "Bearer 1")}
			inBubble(t, r.fake(), func(b *bubble) {
				c := b.open()
				r.end = make(chan struct{})
				s, err := c.Query(b.Context(), "q", backend.Call{})
				require.NoError(b, err)
				close(r.end)
				synctest.Wait() // all of the result has come
				require.Equal(b, "Bearer 1", r.ping(b, c, "Bearer 2"))
				require.Equal(b, upTo(3), values(b, s))
				require.Equal(b, "Bearer 2", r.ping(b, c, ""))
			}, transport, func(cfg *Config) { cfg.Authorization = bearer("Bearer mine") })
		})
	}
}

// What came with the end of a result counts, also if nobody has read as far.
func TestWhatComesWithAnUnreadEndCounts(t *testing.T) {
	for name, transport := range transports {
		t.Run(name, func(t *testing.T) {
			r := &repliesServer{next: "Bearer 0", trailers: metadata.Pairs("authorization", "Bearer 1", "set-cookie", "session=2")}
			inBubble(t, r.fake(), func(b *bubble) {
				c := b.open()
				told := make(chan error, 1)
				c.OnLost(func(err error) { told <- err })
				r.mu.Lock()
				r.next, r.end = "", make(chan struct{})
				r.mu.Unlock()
				s, err := c.Query(b.Context(), "q", backend.Call{})
				require.NoError(b, err)
				close(r.end)
				synctest.Wait()
				s.Close()
				require.Equal(b, "Bearer 1", c.id.credential().Header)
				require.ErrorIs(b, c.Lost(), backend.ErrSessionReplaced)
				require.NoError(b, c.Close())
				require.ErrorIs(b, <-told, backend.ErrSessionReplaced)
			}, transport, func(cfg *Config) { cfg.Authorization, cfg.CloseTimeout = bearer("Bearer mine"), -1 })
		})
	}
}

// A token that no header can have would end every later call.
func TestATokenThatCannotBeSentIsNotTaken(t *testing.T) {
	id := &identity{}
	id.setCredential(Credential{Header: "Bearer mine"})
	for _, bad := range []string{"", "Bearer \x00", "Bearer é", "Bearer a\r\nb"} {
		id.learnFromReply(t.Context(), metadata.Pairs("authorization", bad))
		require.Equal(t, "Bearer mine", id.credential().Header, "%q", bad)
	}
}

// A server that answers the first round trip with a token of the connection's own binds the session to that: it is ended where the
// open fails.
func TestTheSessionOfATokenInAReplyEndsWithAnOpenThatFails(t *testing.T) {
	for _, next := range []string{"", "Bearer mine", "Bearer own"} {
		closed, f := "", &fake{}
		f.info = func(ctx context.Context, _ *pb.FlightDescriptor) (*pb.FlightInfo, error) {
			if next != "" {
				_ = grpc.SetHeader(ctx, metadata.Pairs("authorization", next))
			}
			return nil, status.Error(codes.InvalidArgument, "no such probe")
		}
		f.action = func(a *pb.Action, s pb.FlightService_DoActionServer) error {
			md, _ := metadata.FromIncomingContext(s.Context())
			closed = a.GetType() + " " + strings.Join(md.Get("authorization"), ",")
			return s.Send(&pb.Result{})
		}
		inBubble(t, f, func(b *bubble) {
			_, err := b.endpoint.Open(b.Context())
			require.ErrorContains(b, err, "no such probe")
			synctest.Wait()
			if next == "Bearer own" {
				require.Equal(b, "CloseSession Bearer own", closed)
			} else {
				require.Empty(b, closed, "%q", next)
			}
		}, func(cfg *Config) { cfg.Authorization, cfg.ProbeSQL = bearer("Bearer mine"), "SELECT 1" })
	}
}
