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
	text, learn, leave := r.conn.TextToPrepare(ctx, sql)
	defer leave()
	reply, err = r.createPrepared(ctx, text, call)
	if text != sql && isStatementFault(err) {
		err = fmt.Errorf("%w (of the text with a comment that makes it unique, since equal texts are one statement on this server)", err)
	}
	if err != nil {
		return nil, false, err
	}
	again, err = learn(string(reply.GetPreparedStatementHandle()))
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

// awaitFirstPrepare lets those who find out what the handles are do so one after the other: of two equal texts at once the
// server would close one while it prepares it. Nobody waits for long for one that is not answered.
func (e *Endpoint) awaitFirstPrepare(ctx context.Context) (leave func()) {
	limit := time.NewTimer(harmlessTimeout)
	defer limit.Stop()
	select {
	case e.firstPrepare <- struct{}{}:
		return func() { <-e.firstPrepare }
	case <-limit.C:
	case <-ctx.Done(): // what is sent fails by it
	}
	return func() {}
}

// TextToPrepare is the text by which the server is to prepare a statement of the connection's that is nobody else's, in one attempt, of
// this client or another. learn takes the handle that the server gives: again says that the statement is everybody's, so that it is to be
// closed, unused, and the text to be asked for once more. leave must be called at the end.
func (c *Conn) TextToPrepare(ctx context.Context, sql string) (text string, learn func(handle string) (again bool, err error), leave func()) {
	known := &c.endpoint.capabilities.handles
	isSQL, leave := func() bool { return sqlscan.Parse(sql).IsSQL() }, func() {}
	if known.Load() == handlesUnknown {
		if leave = c.endpoint.awaitFirstPrepare(ctx); known.Load() != handlesUnknown { // those behind need not wait, either
			leave()
			leave = func() {}
		}
	}
	if known.Load() == handlesAreTexts && isSQL() {
		return sql + "\n/* " + rand.Text() + " */", func(handle string) (bool, error) {
			if handle == sql {
				return false, &backend.Error{Op: "Prepare", Stage: backend.StagePrepare, Fault: backend.FaultStatement, Target: c.target(), Err: errEqualTexts}
			}
			return false, nil
		}, leave
	}
	return sql, func(handle string) (bool, error) {
		switch {
		case handle != sql:
			known.CompareAndSwap(handlesUnknown, handlesAreNames)
			return false, nil
		case !isSQL():
			return false, nil
		default:
			known.Store(handlesAreTexts)
			return true, nil
		}
	}, leave
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
