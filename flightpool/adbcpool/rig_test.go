package adbcpool

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/apache/arrow-adbc/go/adbc"
	flightdriver "github.com/apache/arrow-adbc/go/adbc/driver/flightsql"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// rig is a test server and the three ways to have a pool of it.
type rig struct {
	*testing.T
	server *testserver.Server
}

// inBubble runs test in virtual time against a server.
func inBubble(t *testing.T, p testserver.Profile, test func(r rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, err := testserver.Start(testserver.Options{Profile: p, Listen: testserver.InMemory})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		test(rig{t, s})
	})
}

// kinds are the backends.
var kinds = []string{"native", "open", "new"}

// pool makes a pool that is closed at the end.
func (r rig) pool(kind string, change ...func(*flightpool.Config)) *flightpool.FlightSQLPool {
	r.Helper()
	p, err := r.tryPool(kind, change...)
	require.NoError(r, err)
	r.Cleanup(func() { require.NoError(r, p.Close(context.WithoutCancel(r.Context()))) })
	return p
}

func (r rig) tryPool(kind string, change ...func(*flightpool.Config)) (*flightpool.FlightSQLPool, error) {
	cfg := flightpool.Config{MaxSize: 2}
	if kind != "new" {
		cfg.Dialer = r.server.Dial
	}
	for _, f := range change {
		f(&cfg)
	}
	if kind != "new" && r.server.Profile().SessionKey == testserver.ByBearer {
		cfg.Auth = flightpool.BasicAuth("u", "p")
	}
	target := "grpc://127.0.0.1:1" // the dialer knows better
	switch kind {
	case "native":
		return flightpool.New(r.Context(), target, cfg)
	case "open":
		return Open(r.Context(), target, cfg)
	default:
		return New(r.Context(), r.database(), cfg)
	}
}

func (r rig) database() adbc.Database {
	options := map[string]string{}
	key := r.server.Profile().SessionKey
	if key == testserver.ByCookie {
		options[flightdriver.OptionCookieMiddleware] = adbc.OptionValueEnabled
	}
	if key == testserver.ByBearer {
		options[adbc.OptionKeyUsername], options[adbc.OptionKeyPassword] = "u", "p"
	}
	db, err := driverWith(options, "127.0.0.1:1", grpc.WithContextDialer(r.server.Dial))
	require.NoError(r, err)
	r.Cleanup(func() { require.NoError(r, db.Close()) })
	return db
}

// driverAt is ADBC's Flight SQL driver as a user would make it, but for one
// defect, which the race detector finds: it reads the trailers of a stream
// that was ended early while gRPC writes them. And a stream that the driver
// leaves half read must not be collected before it has ended: Arrow's client
// has a finalizer for it, which touches a channel of the bubble from outside.
func driverAt(addr string, opts ...grpc.DialOption) (adbc.Database, error) {
	return driverWith(map[string]string{}, addr, opts...)
}

// driverWith is driverAt with options of the driver's.
func driverWith(options map[string]string, addr string, opts ...grpc.DialOption) (adbc.Database, error) {
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
	options[adbc.OptionKeyURI] = "grpc://" + addr
	db, err := flightdriver.NewDriver(memory.DefaultAllocator).NewDatabaseWithOptions(options, append(opts, grpc.WithChainStreamInterceptor(quiet))...)
	if err == nil {
		db.(adbc.DatabaseLogging).SetLogger(slog.New(slog.DiscardHandler))
	}
	return db, err
}

func (r rig) update(p *flightpool.FlightSQLPool, sql string) {
	r.Helper()
	_, err := p.Update(r.Context(), sql)
	require.NoError(r, err)
}

// executions is how often the server has run sql.
func (r rig) executions(sql string) int { return len(r.server.Ledger().Executions(sql)) }

func generate(n int) string { return fmt.Sprintf("SELECT * FROM generate(%d)", n) }
