package testserver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/flightpool/flightpool/internal/memnet"
	"github.com/flightpool/flightpool/testserver/engine"
	"github.com/flightpool/flightpool/testserver/script"
)

// Server is a running Flight SQL server. All methods are safe for concurrent
// use.
type Server struct {
	opts     Options
	profile  Profile
	began    time.Time
	listener *memnet.Listener
	uri      string
	grpcOpts []grpc.ServerOption
	health   *health.Server
	handlers *handlers
	ledger   *Ledger
	faults   *Faults

	auth     authority
	sessions sessions
	tickets  tickets
	queue    statementQueue

	stop       context.CancelFunc // ends what waits on no RPC
	goroutines sync.WaitGroup     // every goroutine of the server
	closing    sync.Once

	conns struct {
		sync.Mutex
		open map[*serverConn]struct{}
		last int
	}
}

// ErrListen says that a Server was given an address it cannot listen on.
var ErrListen = errors.New("testserver: cannot listen")

var lastInMemory atomic.Int64

// Start starts a server. Close it when done.
func Start(opts Options) (*Server, error) {
	s := &Server{ledger: newLedger(), began: time.Now()}
	var err error
	if s.profile, err = opts.Profile.resolve(); err != nil {
		return nil, fmt.Errorf("testserver: invalid options: %w", err)
	}
	s.opts = opts
	setDefault(&s.opts.Listen, "127.0.0.1:0")
	if s.opts.Engine == nil {
		s.opts.Engine = script.New()
	}
	if s.opts.Allocator == nil {
		s.opts.Allocator = memory.DefaultAllocator
	}
	if s.profile.AppendTo != "" {
		if err := attach(s.opts.Engine, s.profile.AppendTo); err != nil {
			return nil, err
		}
	}
	s.faults = &Faults{srv: s}
	s.auth.init(s)
	s.sessions.init(s)
	s.tickets.byID = map[string]*ticket{}
	s.conns.open = map[*serverConn]struct{}{}
	s.health = health.NewServer()
	s.health.SetServingStatus("arrow.flight.protocol.FlightService", grpc_health_v1.HealthCheckResponse_SERVING)
	if s.handlers, err = newHandlers(s); err != nil {
		return nil, err
	}
	if s.listener, err = listen(s.opts.Listen); err != nil {
		return nil, fmt.Errorf("%w on %s: %w", ErrListen, s.opts.Listen, err)
	}

	scheme := "grpc+tcp"
	limit := s.profile.MaxRequest
	if s.profile.TooLargeCode != codes.ResourceExhausted { // then checkSize looks
		limit = math.MaxInt32
	}
	s.grpcOpts = []grpc.ServerOption{grpc.MaxRecvMsgSize(limit), grpc.WaitForHandlers(true)}
	if opts.TLS != nil {
		scheme = "grpc+tls"
		s.grpcOpts = append(s.grpcOpts, grpc.Creds(credentials.NewTLS(opts.TLS)))
	}
	if s.listener.Addr().Network() == "unix" {
		scheme = "grpc+unix"
	}
	s.uri = scheme + "://" + s.Addr()
	s.grpcOpts = append(s.grpcOpts, opts.GRPC...)

	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.goroutines.Go(func() { s.accept(ctx) })
	return s, nil
}

func attach(e engine.Engine, catalog string) error {
	a, ok := e.(engine.Attacher)
	if !ok {
		return fmt.Errorf("testserver: invalid options: Profile.AppendTo: the engine cannot attach the catalog %q", catalog)
	}
	if err := a.Attach(context.Background(), catalog); err != nil {
		return fmt.Errorf("testserver: attach the catalog %q: %w", catalog, err)
	}
	return nil
}

// checkSize answers for a message over the limit, where gRPC does not.
func (s *Server) checkSize(m proto.Message) error {
	limit := s.profile.MaxRequest
	if s.profile.TooLargeCode == codes.ResourceExhausted {
		return nil
	}
	if n := proto.Size(m); n > limit {
		return status.Errorf(s.profile.TooLargeCode, "decoded message length too large: found %d bytes, the limit is: %d bytes", n, limit)
	}
	return nil
}

func listen(where string) (*memnet.Listener, error) {
	if where == InMemory {
		return memnet.New(fmt.Sprintf("memory%d:1", lastInMemory.Add(1))), nil
	}
	network, address := "tcp", where
	if path, ok := strings.CutPrefix(where, "unix:"); ok {
		network, address = "unix", path
	}
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	return memnet.Over(l), nil
}

// Addr is the address that clients dial: "host:port", or the path of a unix
// socket. That of an in-memory server means something to Dial only.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// URI is Addr with the scheme that fits the transport, for example
// "grpc+tcp://127.0.0.1:41234".
func (s *Server) URI() string { return s.uri }

// Dial connects to this server, whatever addr is, in memory or through the
// network. It fits grpc.WithContextDialer.
func (s *Server) Dial(ctx context.Context, addr string) (net.Conn, error) {
	if s.opts.Listen == InMemory {
		return s.listener.Dial(ctx, addr)
	}
	var d net.Dialer
	return d.DialContext(ctx, s.listener.Addr().Network(), s.Addr())
}

// Profile is how the server behaves, with the defaults filled in.
func (s *Server) Profile() Profile { return s.profile }

// Ledger is the account of what happened. It stays readable after Close.
func (s *Server) Ledger() *Ledger { return s.ledger }

// Faults are the things that go wrong.
func (s *Server) Faults() *Faults { return s.faults }

// Close ends the server at once: its connections, calls, statements and
// sessions, then the engine. It returns when all is gone, with the engine's
// error. Later calls wait for the first and return nil.
func (s *Server) Close() (err error) {
	s.closing.Do(func() {
		_ = s.listener.Close()
		s.stop()
		for _, c := range s.openConns() {
			if c.Frozen() {
				c.Cut() // a goodbye could not be written
			}
			c.grpc.Stop()
		}
		s.sessions.closeAll()
		s.goroutines.Wait()
		s.tickets.dropSession(nil)
		s.health.Shutdown()
		err = s.opts.Engine.Close()
	})
	return err
}
