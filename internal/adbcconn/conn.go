package adbcconn

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-adbc/go/adbc"
	"google.golang.org/grpc"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/eof"
	"github.com/flightpool/flightpool/internal/flightconn"
)

// Conn is backend.Conn over a connection of ADBC's Flight SQL driver, whose
// transport is a native connection. What the driver cannot do, or not within
// a bound (transactions, options, metadata, cancelling, pings), is the native
// connection's.
type Conn struct {
	*flightconn.Conn
	driver *Driver
	cc     *grpc.ClientConn // the driver's own, under which it is known
	cn     adbc.Connection

	// closingStatement is the call in which a statement of the driver's is
	// being closed: the driver has no context for that.
	closingStatement atomic.Pointer[call]

	mu struct { // guards the fields below; nothing is called under it
		sync.Mutex
		// INVARIANT: the driver's connection is closed by whoever makes
		// closed true and inside 0. The driver crashes when it is entered
		// after its Close, or during it.
		callsInside int
		closed      bool
	}
}

var _ backend.Conn = (*Conn)(nil)

// call is one call of backend.Conn that goes through the driver.
type call struct {
	conn        *Conn
	external    *flightconn.ExternalCall
	ctx         context.Context //nolint:containedctx // the driver's: it carries the call to our interceptors
	tx          backend.TxID
	op          *backend.Operation
	backendCall backend.Call
	sendsRows   bool // of parameters, or of an ingestion
	ingests     bool
	binds       bool           // parameters of a query
	put         *commandStream // of an ingestion that has begun

	preparedHandle string // that the server has given

	endpoints []*endpoint // of the result, in the server's order

	oneAtATime atomic.Bool // the server has refused one beside another
	rpcErr     atomic.Pointer[error]
	readerCtx  atomic.Pointer[context.Context] // of the streams of the driver's reader
	givenUp    atomic.Bool                     // by that
	endOnce    sync.Once
}

// begin starts a call. It fails, with nothing sent, when the transport has
// ended or a header cannot be sent. The caller must call end.
func (c *Conn) begin(ctx context.Context, op string, sc backend.Call) (*call, error) {
	external, err := c.BeginExternal(ctx, op, sc.Headers)
	if err != nil {
		return nil, err
	}
	if !c.enterDriver() { // closed in between
		external.End()
		return nil, external.WrapError(backend.StageNone, context.Canceled)
	}
	if sc.Tx != "" {
		external.NeedsSession()
	}
	k := &call{conn: c, external: external, tx: sc.Tx, op: sc.Op, backendCall: sc}
	k.ctx = context.WithValue(external.Context(), callKey{}, k)
	return k, nil
}

// end ends the call's RPCs and leaves the driver. No goroutine of the call is
// in the driver any more. Later calls do nothing.
func (k *call) end() {
	k.endOnce.Do(func() {
		k.external.End()
		k.conn.leaveDriver()
	})
}

// recordRPCError keeps the first error that an RPC of the call failed with, which the
// driver's own errors do not lead to. It returns err. What endGivenUp has ended is none.
func (k *call) recordRPCError(err error) error {
	if err != nil && !eof.Reached(err) && !k.givenUp.Load() {
		k.rpcErr.CompareAndSwap(nil, &err)
	}
	return err
}

// checkComplete returns an error unless the server has ended every endpoint
// with the status OK. The driver's reader may report an end where an RPC has
// failed. It is asked at each end that the driver reports, so that a short
// result is an error.
func (k *call) checkComplete() error {
	if cause := k.rpcErr.Load(); cause != nil {
		return *cause
	}
	if i := k.unended(); i >= 0 {
		return k.errStoppedBefore(i)
	}
	return nil
}

// wrapError makes the call's error of what the driver returned. An RPC that has
// failed is the cause, whatever the driver has made of it: of a status the
// driver keeps the code as a number, and of a context's end nothing that
// errors.Is finds.
func (k *call) wrapError(stage backend.Stage, err error) error {
	if cause := k.rpcErr.Load(); cause != nil {
		return k.external.WrapError(stage, WithCause(err, *cause))
	}
	return k.external.WrapError(stage, WithCause(err, localCause(err)))
}

// enterDriver admits a call into the driver, which leaveDriver must end. It is
// false once Close has been called.
func (c *Conn) enterDriver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return false
	}
	c.mu.callsInside++
	return true
}

// leaveDriver ends what enterDriver began. The last call out closes the
// driver's connection when Close has come meanwhile.
func (c *Conn) leaveDriver() {
	c.mu.Lock()
	c.mu.callsInside--
	last := c.mu.closed && c.mu.callsInside == 0
	c.mu.Unlock()
	if last {
		c.closeDriver()
	}
}

// Close is part of backend.Conn. The native connection ends the server's
// session, the transport and the calls under way, within its bound. That lets
// the driver return from its calls, and the last of them closes the driver's
// part; Close does not wait for that.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.mu.Lock()
	last := !c.mu.closed && c.mu.callsInside == 0
	c.mu.closed = true
	c.mu.Unlock()
	if last {
		c.closeDriver()
	}
	return err
}

// closeDriver lets go of the driver's connection. It makes no RPC: that of
// CloseSession is refused.
func (c *Conn) closeDriver() {
	_ = c.cn.Close() // nothing but memory depends on it
	c.driver.conns.Delete(c.cc)
}

// Query is part of backend.Conn.
func (c *Conn) Query(ctx context.Context, sql string, sc backend.Call) (backend.Stream, error) {
	k, err := c.begin(ctx, "Query", sc)
	if err != nil {
		return nil, err
	}
	stmt, err := k.statement(sql)
	if err != nil {
		k.end()
		return nil, err
	}
	return k.query(stmt, func() { _ = stmt.Close() })
}

// query executes stmt and opens its result. done is called when the driver is
// through with the statement. It ends the call unless it returns a stream,
// which does so then.
//
// It may be that the driver has fetched already: with several endpoints, or one
// without a schema in its FlightInfo, ExecuteQuery waits for the first of them.
func (k *call) query(stmt adbc.Statement, done func()) (backend.Stream, error) {
	rows, _, err := stmt.ExecuteQuery(k.ctx)
	if err != nil {
		err = k.wrapError(k.failureStage(), err)
		done()
		k.end()
		return nil, err
	}
	return newStream(&connSource{call: k, rows: rows, done: done}), nil
}

// failureStage tells the failure of planning from that of reading.
func (k *call) failureStage() backend.Stage {
	if k.endpoints != nil {
		return backend.StageFetch
	}
	return backend.StageExecute
}

// Update is part of backend.Conn.
func (c *Conn) Update(ctx context.Context, sql string, sc backend.Call) (int64, error) {
	k, err := c.begin(ctx, "Update", sc)
	if err != nil {
		return 0, err
	}
	defer k.end()
	stmt, err := k.statement(sql)
	if err != nil {
		return 0, err
	}
	defer func() { _ = stmt.Close() }()
	return k.update(stmt)
}

// update executes stmt for its effect. The count is -1 where the server does
// not tell.
func (k *call) update(stmt adbc.Statement) (int64, error) {
	n, err := stmt.ExecuteUpdate(k.ctx)
	if err != nil {
		return 0, k.wrapError(backend.StageExecute, err)
	}
	return max(n, -1), nil
}
