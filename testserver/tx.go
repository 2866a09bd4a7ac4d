package testserver

import (
	"context"
	"errors"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/testserver/engine"
)

func (h *handlers) BeginTransaction(ctx context.Context, _ flightsql.ActionBeginTransactionRequest) ([]byte, error) {
	c := callOf(ctx)
	id := c.sess.newTxID()
	err := c.sess.runStatement(ctx, c, Statement{SQL: "BEGIN", Kind: KindBegin}, nil, func(ctx context.Context, db engine.Session) error {
		err := db.Begin(ctx)
		if err == nil {
			c.sess.tx = &transaction{id: id}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return []byte(id), nil
}

func (h *handlers) EndTransaction(ctx context.Context, r flightsql.ActionEndTransactionRequest) error {
	c := callOf(ctx)
	st := Statement{SQL: "ROLLBACK", Kind: KindRollback, Tx: string(r.GetTransactionId())}
	commit := r.GetAction() == flightsql.EndTransactionCommit
	if commit {
		st.SQL, st.Kind = "COMMIT", KindCommit
	}
	if err := h.srv.profile.checkID("transaction ID", st.Tx); err != nil {
		return err
	}
	known := false
	err := c.sess.withEngineLock(ctx, func() error {
		known = c.sess.tx != nil && (c.sess.tx.id == st.Tx || h.srv.profile.EndsAnyTx)
		if _, ended := c.sess.autoRecovered[st.Tx]; ended {
			delete(c.sess.autoRecovered, st.Tx)
			return status.Error(codes.FailedPrecondition, "transaction aborted and rolled back; start a new transaction")
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case !known && h.srv.profile.UnknownTxOK:
		c.sess.restartTTL()
		return nil
	case !known && h.srv.profile.EndsAnyTx:
		return status.Errorf(codes.InvalidArgument, "TransactionContext Error: cannot %s - no transaction is active", strings.ToLower(st.SQL))
	case !known:
		return errUnknownTx
	}
	return c.sess.runStatement(ctx, c, st, nil, func(ctx context.Context, db engine.Session) error {
		if !commit {
			return db.Rollback(ctx)
		}
		err := db.Commit(ctx)
		if errors.Is(err, engine.ErrTxAborted) && h.srv.profile.AbortedCommitOK {
			err = nil
		}
		return err
	})
}

func (h *handlers) BeginSavepoint(ctx context.Context, r flightsql.ActionBeginSavepointRequest) ([]byte, error) {
	c := callOf(ctx)
	id := c.sess.newTxID()
	st := Statement{SQL: "SAVEPOINT " + r.GetName(), Kind: KindSavepoint, Tx: string(r.GetTransactionId())}
	err := c.sess.runStatement(ctx, c, st, nil, func(ctx context.Context, db engine.Session) error {
		err := db.Savepoint(ctx, r.GetName())
		if err == nil {
			c.sess.savepoints[id] = r.GetName()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return []byte(id), nil
}

func (h *handlers) EndSavepoint(ctx context.Context, r flightsql.ActionEndSavepointRequest) error {
	c := callOf(ctx)
	id := string(r.GetSavepointId())
	var name, tx string
	err := c.sess.withEngineLock(ctx, func() error {
		var known bool
		if name, known = c.sess.savepoints[id]; !known {
			return status.Error(codes.InvalidArgument, "unknown savepoint")
		}
		if c.sess.tx != nil {
			tx = c.sess.tx.id
		}
		return nil
	})
	if err != nil {
		return err
	}
	st := Statement{SQL: "RELEASE " + name, Kind: KindSavepoint, Tx: tx}
	release := r.GetAction() == flightsql.EndSavepointRelease
	if !release {
		st.SQL = "ROLLBACK TO " + name
	}
	return c.sess.runStatement(ctx, c, st, nil, func(ctx context.Context, db engine.Session) error {
		if !release {
			return db.RollbackTo(ctx, name)
		}
		err := db.Release(ctx, name)
		if err == nil {
			delete(c.sess.savepoints, id)
		}
		return err
	})
}
