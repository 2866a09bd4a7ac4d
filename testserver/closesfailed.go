package testserver

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// updatePrepared runs a prepared update with params, which it owns.
func (h *handlers) updatePrepared(ctx context.Context, p *prepared, params []arrow.RecordBatch) (int64, error) {
	p.mu.Lock()
	closed := p.closed
	p.mu.Unlock()
	if closed {
		releaseAll(params)
		return 0, status.Error(codes.Internal, "Statement was closed")
	}
	n, err := h.update(ctx, Statement{SQL: p.sql, Kind: KindUpdate, Tx: p.tx}, params)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = err != nil && h.srv.profile.ClosesFailed
	return n, err
}
