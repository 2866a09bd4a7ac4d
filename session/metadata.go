package session

import (
	"context"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// Metadata runs one catalogue call on the handle's session. The server may run
// statements of its own for it: one that fails aborts an open transaction, as
// one of the caller's does, and in an aborted one it answers ErrTxAborted.
func (s *SessionHandle) Metadata(ctx context.Context, req backend.MetadataRequest) (*QueryResult, error) {
	return s.MetadataWithOptions(ctx, req, QueryOptions{})
}

// MetadataWithOptions is Metadata with options, of which Timeout, Headers and NoCancel
// apply. No transaction's id goes with the call: Flight SQL's catalogue calls have no
// field for it.
func (s *SessionHandle) MetadataWithOptions(ctx context.Context, req backend.MetadataRequest, opts QueryOptions) (*QueryResult, error) {
	opts = QueryOptions{Timeout: opts.Timeout, Headers: opts.Headers, NoCancel: opts.NoCancel}
	c, err := s.begin(ctx, req.Kind.String(), opts, s.readMode())
	if err != nil {
		return nil, err
	}
	c.script = sqlscan.Parse("SHOW metadata") // a read
	c.serverMayExecute = true
	if tx := s.txState(); tx.phase == txAborted {
		return nil, c.finish(outcome{err: usageError(tx.abortedErr())})
	}
	c.beforeSend = s.proveIfAlive
	return s.openResult(c, func(ctx context.Context) (backend.Stream, error) { return s.conn.Metadata(ctx, req, c.backendCall) })
}
