package flightconn

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
)

// Begin is part of backend.Conn. The first of an endpoint also learns what
// RejectsUnknownTx reports, while nothing can be lost by it.
func (c *Conn) Begin(ctx context.Context) (backend.TxID, error) {
	ctx, r, err := c.begin(ctx, "Begin", nil)
	if err != nil {
		return "", err
	}
	defer r.end()
	tx, err := r.beginAndLearnTxIDs(ctx)
	if err != nil {
		return "", r.wrapError(backend.StageExecute, err)
	}
	if err := c.claimTx(ctx, tx); err != nil {
		return "", err
	}
	return tx, nil
}

// EndTx is part of backend.Conn. It sends one request and never repeats it:
// whether a COMMIT that failed was carried out is for the session to find out.
func (c *Conn) EndTx(ctx context.Context, tx backend.TxID, commit bool) error {
	ctx, r, err := c.begin(ctx, "EndTx", nil)
	if err != nil {
		return err
	}
	defer r.end()
	r.info.needsSession = true
	if err := r.endTx(ctx, tx, commit); err != nil {
		return r.wrapError(backend.StageExecute, err) // a ROLLBACK follows, which must not meet another session's
	}
	c.endpoint.openTxs.release(c)
	return nil
}

// Savepoint is part of backend.Conn.
func (c *Conn) Savepoint(ctx context.Context, tx backend.TxID, name string) (backend.SavepointID, error) {
	ctx, r, err := c.begin(ctx, "Savepoint", nil)
	if err != nil {
		return "", err
	}
	defer r.end()
	req := &pb.ActionBeginSavepointRequest{TransactionId: r.txID(tx), Name: name}
	var reply pb.ActionBeginSavepointResult
	err = c.sqlAction(r.rpcContext(ctx), c.flight, flightsql.BeginSavepointActionType, req, &reply)
	if err == nil && len(reply.GetSavepointId()) == 0 {
		err = malformed("an empty savepoint id")
	}
	if err != nil {
		return "", r.wrapError(backend.StageExecute, err)
	}
	return backend.SavepointID(reply.GetSavepointId()), nil
}

// EndSavepoint is part of backend.Conn.
func (c *Conn) EndSavepoint(ctx context.Context, sp backend.SavepointID, end backend.SavepointEnd) error {
	ctx, r, err := c.begin(ctx, "EndSavepoint", nil)
	if err != nil {
		return err
	}
	defer r.end()
	r.info.needsSession = true
	req := &pb.ActionEndSavepointRequest{SavepointId: []byte(sp), Action: pb.ActionEndSavepointRequest_END_SAVEPOINT_RELEASE}
	if end == backend.SavepointRollback {
		req.Action = pb.ActionEndSavepointRequest_END_SAVEPOINT_ROLLBACK
	}
	if err := c.sqlAction(r.rpcContext(ctx), c.flight, flightsql.EndSavepointActionType, req, nil); err != nil {
		return r.wrapError(backend.StageExecute, err)
	}
	return nil
}

// beginTx begins a transaction on the server. An empty id would stand for none
// in every later command, so it is a malformed reply.
func (r *rpcCall) beginTx(ctx context.Context) (backend.TxID, error) {
	var reply pb.ActionBeginTransactionResult
	err := r.conn.sqlAction(r.rpcContext(ctx), r.conn.flight, flightsql.BeginTransactionActionType, &pb.ActionBeginTransactionRequest{}, &reply)
	if err == nil && len(reply.GetTransactionId()) == 0 {
		err = malformed("an empty transaction id")
	}
	if err == nil {
		r.conn.endpoint.capabilities.transactions.markPresent()
	}
	return backend.TxID(reply.GetTransactionId()), err
}

func (r *rpcCall) endTx(ctx context.Context, tx backend.TxID, commit bool) error {
	req := &pb.ActionEndTransactionRequest{
		TransactionId: []byte(tx), Action: pb.ActionEndTransactionRequest_END_TRANSACTION_ROLLBACK,
	}
	if commit {
		req.Action = pb.ActionEndTransactionRequest_END_TRANSACTION_COMMIT
	}
	return r.conn.sqlAction(r.rpcContext(ctx), r.conn.flight, flightsql.EndTransactionActionType, req, nil)
}
