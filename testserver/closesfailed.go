package testserver

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
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

func (p Profile) unknownPrepared() codes.Code {
	if p.CancelCloses {
		return codes.NotFound
	}
	return codes.InvalidArgument
}

// closeUnknown is what a statement that is not known is closed with.
func (p Profile) closeUnknown(err error) error {
	if p.CancelCloses {
		return nil
	}
	return err
}

// planPrepared plans a prepared query.
func (h *handlers) planPrepared(ctx context.Context, p *prepared, st Statement, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	info, err := h.planQuery(ctx, st, h.takeParams(p), d)
	if err == nil && h.srv.profile.CancelCloses {
		p.mu.Lock()
		p.ticket = ticketID(info.GetEndpoint()[0].GetTicket().GetTicket())
		p.mu.Unlock()
	}
	return info, err
}

// closeCancelled closes the prepared statement of a ticket, with CancelCloses.
func (h *handlers) closeCancelled(ticket string) {
	if !h.srv.profile.CancelCloses {
		return
	}
	for _, sess := range h.srv.sessions.all() {
		sess.mu.Lock()
		for handle, p := range sess.mu.prepared {
			p.mu.Lock()
			found := p.ticket == ticket
			p.mu.Unlock()
			if found {
				delete(sess.mu.prepared, handle)
				h.srv.ledger.update(func(now *Snapshot) { now.Prepared-- })
			}
		}
		sess.mu.Unlock()
	}
}
