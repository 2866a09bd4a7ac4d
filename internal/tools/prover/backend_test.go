package prover

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/apache/arrow-adbc/go/adbc"
	flightdriver "github.com/apache/arrow-adbc/go/adbc/driver/flightsql"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/adbcpool"
	"github.com/flightpool/flightpool/testserver"
)

// newPool makes the pool on the program's backend.
func (w *world) newPool(ctx context.Context, cfg flightpool.Config) (*flightpool.FlightSQLPool, error) {
	switch w.program.backend {
	case "", "grpc":
		if w.program.backend == "grpc" {
			cfg.DialOptions = cheapClient
		}
		cfg.Dialer = w.dial
		return flightpool.New(ctx, w.srv.URI(), cfg)
	case "open":
		cfg.Dialer = w.dial
		return adbcpool.Open(ctx, w.srv.URI(), cfg)
	case "new":
		db, err := w.database()
		if err != nil {
			return nil, err
		}
		w.closers = append(w.closers, db.Close)
		return adbcpool.New(ctx, db, cfg)
	default:
		return nil, fmt.Errorf("no backend %q", w.program.backend)
	}
}

// dial connects to the server, through what refuses streams if the program has that.
func (w *world) dial(ctx context.Context, addr string) (net.Conn, error) {
	if w.refusals != nil {
		return w.refusals.Dial(ctx, addr)
	}
	return w.srv.Dial(ctx, addr)
}

// hasBackend reports whether programs of a profile can run over adbcpool.New: what
// connections present is the driver's own there.
func hasBackend(p testserver.Profile, backend string) bool {
	return backend != "new" || p.SessionKey == testserver.ByConnection || p.SessionKey == testserver.ByCookie
}

// database is that of ADBC's Flight SQL driver. It reads trailers while gRPC writes them,
// and Arrow's client has a finalizer for streams left half read, which must not run
// outside of the bubble: neither is ours.
func (w *world) database() (adbc.Database, error) {
	var mu sync.Mutex
	var streams []grpc.ClientStream
	quiet := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		kept := slices.DeleteFunc(slices.Clone(opts), func(o grpc.CallOption) bool {
			_, header := o.(grpc.HeaderCallOption)
			_, trailer := o.(grpc.TrailerCallOption)
			return header || trailer
		})
		stream, err := streamer(ctx, desc, cc, method, kept...)
		mu.Lock()
		defer mu.Unlock()
		streams = append(streams, stream)
		return stream, err
	}
	w.closers = append(w.closers, func() error { // kept until then
		mu.Lock()
		defer mu.Unlock()
		clear(streams)
		return nil
	})
	dial := &w.redial
	dial.kill = func() { w.srv.Faults().KillConns() }
	before := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		dial.before()
		return invoker(ctx, method, req, reply, cc, opts...)
	}
	beforeStream := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		dial.before()
		return streamer(ctx, desc, cc, method, opts...)
	}
	options := map[string]string{adbc.OptionKeyURI: "grpc://127.0.0.1:1"}
	if w.profile.SessionKey == testserver.ByCookie {
		options[flightdriver.OptionCookieMiddleware] = adbc.OptionValueEnabled
	}
	db, err := flightdriver.NewDriver(memory.DefaultAllocator).NewDatabaseWithOptions(options,
		slices.Concat(cheapClient, []grpc.DialOption{grpc.WithContextDialer(w.srv.Dial), grpc.WithChainUnaryInterceptor(before), grpc.WithChainStreamInterceptor(beforeStream, quiet)})...)
	if logging, ok := db.(adbc.DatabaseLogging); ok {
		logging.SetLogger(slog.New(slog.DiscardHandler))
	}
	return db, err
}

// redial has the driver of adbcpool.New dial again between two of its RPCs, of which no call
// of its is told: the transport that it has ends while it does nothing.
type redial struct {
	kill func()
	mu   sync.Mutex // guards what follows
	skip int        // so many RPCs of the driver's pass before the next is sent on another transport
	set  bool
}

// redialPause is the time in which the driver's transport hears of its end.
const redialPause = time.Millisecond

// at sets when it happens, once.
func (r *redial) at(skip int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.skip, r.set = skip, true
}

// never takes back what at has set.
func (r *redial) never() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set = false
}

// before is called before each RPC of the driver's.
func (r *redial) before() {
	r.mu.Lock()
	now := r.set && r.skip == 0
	r.set, r.skip = r.set && !now, r.skip-1
	r.mu.Unlock()
	if now {
		r.kill()
		time.Sleep(redialPause)
	}
}
