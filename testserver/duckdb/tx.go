//go:build duckdb_arrow

package duckdb

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/flightpool/flightpool/testserver/engine"

	capi "github.com/duckdb/duckdb-go-bindings"
)

// isTxState tells the errors that the transaction's state causes. DuckDB has
// no code for them that reaches all of its C interface.
func isTxState(msg string) bool {
	return strings.HasPrefix(msg, "TransactionContext Error") || strings.Contains(msg, "Current transaction is aborted")
}

// Begin opens a transaction.
func (s *session) Begin(ctx context.Context) error {
	if s.inTx { // DuckDB would abort the open one
		return fmt.Errorf("%w: a transaction is open", engine.ErrTxState)
	}
	return s.runTxStatement(ctx, "BEGIN")
}

// Rollback ends the transaction without effect.
func (s *session) Rollback(ctx context.Context) error { return s.runTxStatement(ctx, "ROLLBACK") }

// Commit makes the transaction's effects lasting. DuckDB itself answers a
// COMMIT of an aborted transaction with success and stores nothing; here that
// is ErrTxAborted.
func (s *session) Commit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.inTx && s.aborted() {
		if err := s.Rollback(ctx); err != nil {
			return err
		}
		return engine.ErrTxAborted
	}
	return s.runTxStatement(ctx, "COMMIT")
}

// runTxStatement runs a transaction statement as if it had come as SQL text.
func (s *session) runTxStatement(ctx context.Context, sql string) error {
	_, err := s.Update(ctx, sql, nil)
	return err
}

// InTx reports whether a transaction is open.
func (s *session) InTx() bool { return s.inTx }

// queryInTx asks DuckDB whether a transaction is open: outside one, each
// statement has an id of its own. It is called after each statement that may
// have changed that, since the text of such a statement ("COMMIT; -- done")
// tells less than the state. (A BEGIN as the probe would abort what is open.)
func (s *session) queryInTx() bool {
	first, err := s.txID()
	if err != nil {
		return true // aborted
	}
	second, err := s.txID()
	return err != nil || first == second
}

func (s *session) txID() (id uint64, err error) {
	err = s.exec("SELECT txid_current()::UBIGINT", func(res *capi.Result) {
		chunk := capi.FetchChunk(*res)
		defer capi.DestroyDataChunk(&chunk)
		id = *(*uint64)(capi.VectorGetData(capi.DataChunkGetVector(chunk, 0)))
	})
	return id, err
}

// aborted reports whether a statement has failed in the open transaction.
func (s *session) aborted() bool {
	_, err := s.txID()
	return err != nil && errors.Is(err, engine.ErrTxState)
}

// Savepoint is not known to DuckDB.
func (s *session) Savepoint(context.Context, string) error { return engine.ErrUnsupported }

// RollbackTo is not known to DuckDB.
func (s *session) RollbackTo(context.Context, string) error { return engine.ErrUnsupported }

// Release is not known to DuckDB.
func (s *session) Release(context.Context, string) error { return engine.ErrUnsupported }
