package registry_test

import (
	"context"
	"database/sql/driver"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/testserver"
)

// A tracer notes what it is told, and does what a test says besides.
type tracer struct {
	who string

	mu   sync.Mutex
	seen []string
	bad  func()
}

func (r *tracer) note(format string, args ...any) {
	r.mu.Lock()
	r.seen = append(r.seen, fmt.Sprintf(format, args...))
	bad := r.bad
	r.mu.Unlock()
	if bad != nil {
		bad()
	}
}

func (r *tracer) take() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all, r.seen = r.seen, nil
	return all
}

func (r *tracer) be(bad func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bad = bad
}

func (r *tracer) TraceQueryStart(ctx context.Context, d flightpool.QueryStartData) context.Context {
	r.note("start %s %s %s %s %t", r.who, d.Op, d.SQL, d.Target, d.ConnectionID != 0)
	return ctx
}

func (r *tracer) TraceQueryEnd(_ context.Context, d flightpool.QueryEndData) {
	e := &flightpool.Error{}
	if d.Err != nil {
		e = d.Err.(*flightpool.Error) //nolint:errorlint,forcetypeassert // else the test fails
	}
	r.note("end %s %d rows %d affected %v %v %v", d.Op, d.Rows, d.RowsAffected, d.Took, d.FirstBatch, e.Fault)
}

func (r *tracer) TraceAcquireStart(ctx context.Context, d flightpool.AcquireStartData) context.Context {
	r.note("acquire %s", d.Op)
	return ctx
}

func (r *tracer) TraceAcquireEnd(_ context.Context, d flightpool.AcquireEndData) {
	r.note("acquired %t %v", d.ConnectionID != 0, d.Err != nil)
}

func (r *tracer) TraceRelease(_ context.Context, d flightpool.ReleaseData) {
	r.note("release %v %v", d.Held, d.Discard != nil)
}

// traced is a registry of one server of database/sql, whose pools have a tracer.
func traced(t *testing.T, of func(server, user string) any, log *slog.Logger) (*registry.Registry, *fake) {
	f := &fake{byUser: map[string]int{}}
	r, err := registry.NewWith(registry.Config{Tracer: of, Logger: log, Kinds: []registry.Kind{{
		Name: "fake", Connector: func(p registry.ConnectParams) (driver.Connector, error) { return sqlConnector{f, p.User}, nil },
	}}})
	require.NoError(t, err)
	require.NoError(t, r.Register(t.Context(), registry.ServerDefinition{
		Name: "db", Kind: "fake", MaxSize: 1, MinIdle: -1, WarmupConnections: -1, AcquireTimeout: time.Second, HealthCheck: registry.HealthCheck{Disabled: true},
		Options: map[string]string{"host": "db.example", "port": "5432"}, Users: map[string]registry.UserMapping{"ana": {User: "ana"}},
	}))
	return r, f
}

// end closes a registry, also where a test has failed with a connection in its hands.
func end(t *testing.T, r *registry.Registry) {
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	require.NoError(t, r.Close(ctx))
}

func TestCallsOnServersOfDatabaseSQLAreTraced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &tracer{}
		r, _ := traced(t, func(server, user string) any { seen.who = server + "/" + user; return flightpool.Tracers{seen} }, nil)
		defer end(t, r)
		ctx := t.Context()
		c, err := r.Acquire(ctx, "db", "ana")
		require.NoError(t, err)
		require.Equal(t, []string{"acquire Acquire", "acquired true false"}, seen.take())
		_, err = c.SQL().ExecContext(ctx, "2s")
		require.NoError(t, err)
		require.Equal(t, []string{"start db/ana Exec 2s db.example:5432 true", "end Exec 0 rows 1 affected 2s 0s unknown"}, seen.take())
		require.NoError(t, c.SQL().QueryRowContext(ctx, "SELECT").Scan(new(string)))
		require.Equal(t, []string{"start db/ana Query SELECT db.example:5432 true", "end Query 1 rows -1 affected 0s 0s unknown"}, seen.take())
		_, err = c.SQL().BeginTx(ctx, nil)
		require.Error(t, err)
		require.Equal(t, []string{"start db/ana Begin  db.example:5432 true", "end Begin 0 rows -1 affected 0s 0s statement"}, seen.take())
		_, err = r.Acquire(ctx, "db", "ana")
		require.Error(t, err, "there is one")
		require.Equal(t, []string{"acquire Acquire", "acquired false true"}, seen.take())
		short, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		_, err = c.SQL().ExecContext(short, "1h")
		require.Error(t, err)
		require.Equal(t, []string{"start db/ana Exec 1h db.example:5432 true", "end Exec 0 rows -1 affected 1s 0s context"}, seen.take())
		require.NoError(t, c.Fail(nil))
		require.Equal(t, []string{"release 4s true"}, seen.take())
		c, err = r.Acquire(ctx, "db", "ana")
		require.NoError(t, err)
		require.NoError(t, c.Release())
		require.Equal(t, []string{"acquire Acquire", "acquired true false", "release 0s false"}, seen.take())
	})
}

// The lock of database/sql is held meanwhile.
func TestABadTracerHarmsNoConnectionOfDatabaseSQL(t *testing.T) {
	for name, bad := range map[string]func(){"panic": func() { panic("bad") }, "Goexit": runtime.Goexit} {
		synctest.Test(t, func(t *testing.T) {
			var log strings.Builder
			first, last := &tracer{}, &tracer{}
			r, f := traced(t, func(string, string) any { return flightpool.Tracers{first, last} }, slog.New(slog.NewTextHandler(&log, nil)))
			defer end(t, r)
			first.be(bad)
			for range 3 {
				c, err := r.Acquire(t.Context(), "db", "ana")
				require.NoError(t, err)
				_, err = c.SQL().ExecContext(t.Context(), "INSERT")
				require.NoError(t, err)
				require.NoError(t, c.SQL().QueryRowContext(t.Context(), "SELECT").Scan(new(string)))
				require.NoError(t, c.Release())
			}
			require.Len(t, last.take(), 21, name)
			require.Equal(t, 1, f.read(&f.made), "of one connection")
			require.Equal(t, 21, strings.Count(log.String(), "a tracer has failed"))
		})
	}
}

func TestATracerOfNothingIsAnError(t *testing.T) {
	r, _ := traced(t, func(string, string) any { return 7 }, nil)
	defer end(t, r)
	_, err := r.Acquire(t.Context(), "db", "ana")
	require.ErrorContains(t, err, "int implements no tracer of package flightpool")
}

func TestCancelsOfServersAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory})
		require.NoError(t, err)
		defer func() { require.NoError(t, srv.Close()) }()
		r, err := registry.NewWith(registry.Config{Kinds: []registry.Kind{flightKind(srv)}})
		require.NoError(t, err)
		defer end(t, r)
		require.NoError(t, r.Register(t.Context(), registry.ServerDefinition{Name: "s", Kind: "flightsql", Users: map[string]registry.UserMapping{"a": {}}}))
		cut := func() {
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			require.Error(t, r.QueryRow(ctx, "s", "a", "SELECT sleep('1h')").Scan(new(any)))
			time.Sleep(time.Minute)
		}
		cut()
		for _, action := range []testserver.Point{testserver.OnCancel, "CancelQuery"} { // else the latter may meet the statement before its deadline does
			srv.Faults().Set(testserver.Fault{On: action, Do: testserver.Fail(codes.Internal, "no")})
		}
		cut()
		st, err := r.ServerStats("s")
		require.NoError(t, err)
		require.Equal(t, []uint64{1, 1}, []uint64{st.CancelsConfirmed, st.CancelsUnconfirmed})
		users, err := r.UserStats("s")
		require.NoError(t, err)
		require.Equal(t, st.CancelsUnconfirmed, users[0].CancelsUnconfirmed)
	})
}

// A context that ends in the moment in which a connection was lent costs neither the loan nor
// the connection: the tracer ends it between the two.
func TestAContextThatEndsAsItsConnectionIsLentCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &tracer{}
		r, _ := traced(t, func(string, string) any { return flightpool.Tracers{seen} }, nil)
		defer end(t, r)
		ctx, stop := context.WithCancel(t.Context())
		told := 0
		seen.be(func() {
			if told++; told == 2 { // after the start of the acquire its end
				stop()
			}
		})
		c, err := r.Acquire(ctx, "db", "ana")
		seen.be(nil)
		require.NoError(t, err)
		require.NoError(t, c.Release())
		st, err := r.ServerStats("db")
		require.NoError(t, err)
		require.EqualValues(t, 1, st.Acquires)
		require.EqualValues(t, 0, st.Destroyed)
	})
}
