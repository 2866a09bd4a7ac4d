package flightconn

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/sqlscan"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Where the handle of a prepared statement is its text, as on Arrow's reference server in Java, equal texts of all clients
// are one statement. Whoever prepares, executes or closes it ends the rows that another is reading, whose stream ends well
// then, and it has one set of parameters, those that were sent last.

// prepare has the server prepare a statement that is nobody else's. The first of an endpoint shows whether the handle is the
// text; from then on each text has a comment of its own behind it, on a line of its own, since a text may end in a comment.
// Where the server refuses that, it has no prepared statements that could be used.
//
// INVARIANT: no statement of SQL is executed by a handle that is its text as the caller has it. Other texts, names of what a
// server has for example, need not have comments, and stay as they are.
func (r *rpcCall) prepare(ctx context.Context, sql string, call backend.Call) (*pb.ActionCreatePreparedStatementResult, error) {
	reply, again, err := r.prepareUnlessShared(ctx, sql, call)
	if again && err == nil {
		reply, _, err = r.prepareUnlessShared(ctx, sql, call)
	}
	return reply, err
}

// prepareUnlessShared prepares the text in the form in which it is nobody else's, as far as that is known. again says that it
// turned out to be everybody's, and was closed.
func (r *rpcCall) prepareUnlessShared(ctx context.Context, sql string, call backend.Call) (reply *pb.ActionCreatePreparedStatementResult, again bool, err error) {
	p := r.conn.BeginPrepare(ctx, sql)
	defer p.End()
	reply, err = r.createPrepared(ctx, p.Text, call)
	if p.Text != sql && isStatementFault(err) {
		err = fmt.Errorf("%w (of the text with a comment that makes it unique, since equal texts are one statement on this server)", err)
	}
	if err != nil {
		return nil, false, err
	}
	again, err = p.Learn(string(reply.GetPreparedStatementHandle()))
	switch {
	case err != nil:
		_ = r.closeUnused(ctx, reply.GetPreparedStatementHandle()) // the error is another
		return nil, false, err
	case again:
		return nil, true, r.closeUnused(ctx, reply.GetPreparedStatementHandle())
	default:
		return reply, false, nil
	}
}

// Values of capabilities.handles: what the handles of prepared statements are.
const (
	handlesUnknown int32 = iota
	handlesAreNames
	handlesAreTexts
)

// Preparation is one attempt, of this client or another, to have the server prepare a statement of the connection's that is nobody else's.
type Preparation struct {
	Text string // what the server is to prepare

	sql   string
	conn  *Conn
	first bool // one of those who find out what the handles are, of whom one at a time prepares
}

// BeginPrepare begins an attempt. End must be called when it has been made.
func (c *Conn) BeginPrepare(ctx context.Context, sql string) Preparation {
	known, p := &c.endpoint.capabilities.handles, Preparation{Text: sql, sql: sql, conn: c}
	if known.Load() == handlesUnknown {
		if p.first = c.endpoint.awaitFirstPrepare(ctx); known.Load() != handlesUnknown { // those behind need not wait, either
			p.End()
			p.first = false
		}
	}
	if known.Load() == handlesAreTexts && sqlscan.Parse(sql).IsSQL() {
		p.Text = sql + "\n/* " + rand.Text() + " */"
	}
	return p
}

// Learn takes the handle that the server has given. again says that the statement is everybody's, so that it is to be closed,
// unused, and another attempt made.
func (p Preparation) Learn(handle string) (again bool, err error) {
	known := &p.conn.endpoint.capabilities.handles
	switch {
	case handle != p.sql:
		known.CompareAndSwap(handlesUnknown, handlesAreNames)
		return false, nil
	case p.Text != p.sql:
		return false, &backend.Error{Op: "Prepare", Stage: backend.StagePrepare, Fault: backend.FaultStatement, Target: p.conn.target(), Err: errEqualTexts}
	case !sqlscan.Parse(p.sql).IsSQL():
		return false, nil
	default:
		known.Store(handlesAreTexts)
		return true, nil
	}
}

// End lets the next one find out what the handles are, if this one did.
func (p Preparation) End() {
	if p.first {
		<-p.conn.endpoint.firstPrepare
	}
}

// awaitFirstPrepare lets those who find out what the handles are do so one after the other: of two equal texts at once the
// server would close one while it prepares it. Nobody waits for long for one that is not answered, and goes without its turn then.
func (e *Endpoint) awaitFirstPrepare(ctx context.Context) (turn bool) {
	limit := time.NewTimer(harmlessTimeout)
	defer limit.Stop()
	select {
	case e.firstPrepare <- struct{}{}:
		return true
	case <-limit.C:
	case <-ctx.Done(): // what is sent fails by it
	}
	return false
}

// errEqualTexts says that the comment does not help.
var errEqualTexts = errors.New("equal texts are one prepared statement on this server, whatever comment they have: the rows and parameters of several callers would mix")

func isStatementFault(err error) bool {
	s, ok := status.FromError(err)
	return ok && err != nil && backend.FaultOf(s.Code(), s.Message()) == backend.FaultStatement
}

// createPrepared is one round trip. What is too large is not sent.
func (r *rpcCall) createPrepared(ctx context.Context, sql string, call backend.Call) (*pb.ActionCreatePreparedStatementResult, error) {
	req := &pb.ActionCreatePreparedStatementRequest{Query: sql, TransactionId: r.txID(call.Tx)}
	if size, limit := proto.Size(req), r.conn.cfg().RequestLimit; size > limit {
		return nil, r.usageError("%w", &tooLargeError{what: "the statement", size: size, limit: limit})
	}
	reply := &pb.ActionCreatePreparedStatementResult{}
	if err := r.conn.sqlAction(r.rpcContext(ctx), r.conn.flight, flightsql.CreatePreparedStatementActionType, req, reply); err != nil {
		return nil, err
	}
	if len(reply.GetPreparedStatementHandle()) == 0 {
		return nil, malformed("an empty prepared statement handle") // there are servers to which it names others: the latest, or all
	}
	return reply, nil
}

// closeUnused closes a statement that nobody of the endpoint executes, as far as the server does it within CloseTimeout. It
// goes on behind a caller who leaves, of whom the error tells, and does not count as a round trip of the connection.
func (r *rpcCall) closeUnused(ctx context.Context, handle []byte) error {
	c := r.conn
	if !c.endpoint.abandoned.Add() {
		return nil // it ends with the connection
	}
	aside := &rpcCall{conn: c, op: r.op}
	aside.info.headers = r.info.headers
	closing := callback.Go(func() (struct{}, error) {
		defer c.endpoint.abandoned.Done()
		bounded, stop := context.WithTimeout(context.WithoutCancel(ctx), c.endpoint.closeLimit())
		defer stop()
		req := &pb.ActionClosePreparedStatementRequest{PreparedStatementHandle: handle}
		return struct{}{}, c.sqlAction(aside.rpcContext(bounded), c.flight, flightsql.ClosePreparedStatementActionType, req, nil)
	})
	select {
	case <-closing.Done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
