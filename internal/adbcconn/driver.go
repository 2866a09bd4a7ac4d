package adbcconn

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-adbc/go/adbc/driver/flightsql"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/flightconn"
)

// Driver is ADBC's Flight SQL driver with its RPCs turned onto transports of
// the native backend. It is safe for use by any goroutine.
//
// One is enough for a pool: it holds no transport.
type Driver struct {
	db adbc.Database

	// conns finds the Conn of a driver's client in the calls that the driver
	// makes without our context: the closing of a statement.
	conns sync.Map // *grpc.ClientConn -> *Conn
}

// NewDriver makes a driver whose Arrow buffers are held by mem, or by the
// default allocator. The caller must call Close, after the last connection's.
//
// It fails when OTEL_TRACES_EXPORTER names an exporter that the driver does
// not know, "none" among them.
func NewDriver(mem memory.Allocator) (*Driver, error) {
	if mem == nil {
		mem = memory.DefaultAllocator
	}
	d := &Driver{}
	// The driver never dials: no RPC reaches the client that the address
	// belongs to.
	uri := map[string]string{adbc.OptionKeyURI: "grpc://flightpool:1"}
	db, err := flightsql.NewDriver(mem).NewDatabaseWithOptions(uri,
		grpc.WithChainUnaryInterceptor(d.interceptUnary), grpc.WithChainStreamInterceptor(d.interceptStream))
	if err != nil {
		return nil, fmt.Errorf("ADBC's Flight SQL driver: %w", WithCause(err, nil))
	}
	// Its own default writes JSON to stderr. What it has to say is in the
	// errors.
	if l, ok := db.(adbc.DatabaseLogging); ok {
		l.SetLogger(slog.New(slog.DiscardHandler))
	}
	d.db = db
	return d, nil
}

// Close ends the driver's own tracing, if OTEL_TRACES_EXPORTER asked for it.
func (d *Driver) Close() error { return d.db.Close() }

// Wrap puts a driver's connection on top of a native one, which it takes over
// and which must be one of package flightconn. It makes no round trip: the
// native connection has proven itself already.
//
// native is closed where it fails. Opening the driver's connection makes the
// driver ask for SqlInfo; that RPC is answered here, and tells which client is
// the connection's (interceptUnary).
func (d *Driver) Wrap(ctx context.Context, native backend.Conn) (backend.Conn, error) {
	transport, ok := native.(*flightconn.Conn)
	if !ok {
		return nil, errjoin.Join(fmt.Errorf("adbcconn: a connection of type %T cannot carry the driver", native), native.Close())
	}
	c := &Conn{Conn: transport, driver: d}
	cn, err := d.db.Open(context.WithValue(ctx, openingKey{}, c))
	if err != nil {
		err = &backend.Error{Op: "Open", Stage: backend.StageProbe, Fault: backend.FaultUnknown, Err: WithCause(err, nil)}
		return nil, errjoin.Join(err, native.Close())
	}
	c.cn = cn
	return c, nil
}

// openingKey finds, in a context, the Conn that is being opened, and callKey
// the call that an RPC belongs to.
type openingKey struct{}
type callKey struct{}

// callOf finds the call that an RPC of the driver's belongs to, by its context
// or, without one, by its client. nil is an RPC that the driver makes of its
// own accord, such as its CloseSession.
func (d *Driver) callOf(ctx context.Context, cc *grpc.ClientConn) *call {
	if k, ok := ctx.Value(callKey{}).(*call); ok {
		return k
	}
	if c, ok := d.conns.Load(cc); ok {
		return c.(*Conn).closingStatement.Load()
	}
	return nil
}
