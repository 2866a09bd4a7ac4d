package testserver

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/flightpool/flightpool/testserver/engine"
	"github.com/flightpool/flightpool/testserver/internal/sqltext"
)

func (h *handlers) GetFlightInfoStatement(ctx context.Context, q flightsql.StatementQuery, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	st := Statement{SQL: h.srv.profile.queryText(q.GetQuery()), Kind: KindQuery, Tx: string(q.GetTransactionId())}
	if err := h.srv.profile.checkText(st.SQL); err != nil {
		return nil, err
	}
	if err := h.noteQuery(ctx, st); err != nil {
		return nil, err
	}
	return h.planQuery(ctx, st, nil, d)
}

// planQuery does what GetFlightInfo does for a statement, with the parameters
// bound to it, which it takes over.
func (h *handlers) planQuery(ctx context.Context, st Statement, bind []arrow.RecordBatch, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	c := callOf(ctx)
	k := &ticket{sess: c.sess, stmt: st, bind: bind, parts: make([][]arrow.RecordBatch, h.srv.profile.Endpoints)}
	for i := range k.parts {
		k.parts[i] = []arrow.RecordBatch{}
	}
	schema, err := h.schemaFor(ctx, c, k)
	if err != nil {
		k.release()
		return nil, err
	}
	var handles [][]byte
	if h.srv.profile.RoamingTickets || c.hasOwnSession() && !k.hasResult {
		k.release()
		handles = [][]byte{roamingHandle(k.stmt)}
	} else if handles, err = h.srv.tickets.put(ctx, k); err != nil {
		return nil, err
	}
	for i, handle := range handles {
		if handles[i], err = statementTicket(handle); err != nil {
			return nil, err
		}
	}
	return h.info(d, schema, handles...), nil
}

// schemaFor learns the schema of a query as the profile does, by describing
// or by running it.
func (h *handlers) schemaFor(ctx context.Context, c *call, k *ticket) (*arrow.Schema, error) {
	switch h.srv.profile.Run {
	case RunInInfo:
		schema, batches, err := h.collect(ctx, c, k)
		if err != nil {
			return nil, err
		}
		k.hasResult, k.schema, k.parts = true, schema, splitBatches(batches, len(k.parts))
		releaseAll(k.bind)
		k.bind = nil
		return schema, nil
	case RunInBoth:
		if h.srv.profile.ByText {
			return h.schemaByText(ctx, c, k)
		}
	case RunInDoGet:
	}
	d, err := h.describe(ctx, c, k.stmt.SQL, k.stmt.Tx)
	if err != nil || h.srv.profile.Run == RunInDoGet || d.Update {
		return d.Rows, err
	}
	return h.runForSchema(ctx, c, k)
}

// schemaByText is schemaFor with ByText. It makes k a command where the text is
// one, or where the engine does not understand it.
func (h *handlers) schemaByText(ctx context.Context, c *call, k *ticket) (*arrow.Schema, error) {
	parts := sqltext.Statements(k.stmt.SQL)
	kind := kindOfText(parts)
	if kind == textQuery && len(parts) > 1 {
		return arrow.NewSchema(nil, nil), nil // it is known when they run
	}
	if kind == textUnknown || kind == textQuery {
		schema, err := h.runForSchema(ctx, c, k)
		if err == nil || kind == textQuery && !refusedByParser(err) {
			return schema, err
		}
	}
	k.stmt.Kind = KindUpdate
	return arrow.NewSchema(nil, nil), nil
}

// runForSchema runs a query for the schema of its result, unless the session
// has learned it.
func (h *handlers) runForSchema(ctx context.Context, c *call, k *ticket) (*arrow.Schema, error) {
	if schema, ok := c.sess.cachedSchema(ctx, k.stmt.SQL); ok {
		return schema, nil
	}
	schema, batches, err := h.collect(ctx, c, k)
	releaseAll(batches)
	if err == nil {
		c.sess.cacheSchema(ctx, k.stmt.SQL, schema)
	}
	return schema, err
}

// splitBatches deals batches out to n endpoints, in order.
func splitBatches(batches []arrow.RecordBatch, n int) [][]arrow.RecordBatch {
	parts := make([][]arrow.RecordBatch, n)
	for i := range parts {
		from, to := i*len(batches)/n, (i+1)*len(batches)/n
		parts[i] = append([]arrow.RecordBatch{}, batches[from:to]...)
	}
	return parts
}

func statementTicket(handle []byte) ([]byte, error) {
	packed, err := anypb.New(&pb.TicketStatementQuery{StatementHandle: handle})
	if err != nil {
		return nil, err
	}
	return proto.Marshal(packed)
}

func (h *handlers) DoGetStatement(ctx context.Context, t flightsql.StatementQueryTicket) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	c := callOf(ctx)
	if st, ok := parseRoamingHandle(t.GetStatementHandle()); ok {
		if st.Kind == KindUpdate {
			n, err := h.unpreparedUpdate(ctx, st)
			return h.commandResult(ctx, n, err)
		}
		return h.stream(ctx, c, &ticket{sess: c.sess, stmt: st})
	}
	k, part, err := h.srv.tickets.redeem(t.GetStatementHandle())
	if err != nil {
		return nil, nil, err
	}
	c.ticket = k.id
	if k.hasResult {
		return k.schema, h.send(ctx, part), nil
	}
	if k.sess.isEnding() {
		k.release()
		return nil, nil, h.srv.statusOf(ctx, errSessionClosed)
	}
	return h.stream(ctx, c, k)
}

func (h *handlers) GetSchemaStatement(ctx context.Context, q flightsql.StatementQuery, _ *flight.FlightDescriptor) (*flight.SchemaResult, error) {
	d, err := h.describe(ctx, callOf(ctx), q.GetQuery(), string(q.GetTransactionId()))
	if err != nil {
		return nil, err
	}
	return h.schemaResult(d)
}

func (h *handlers) schemaResult(d engine.Description) (*flight.SchemaResult, error) {
	if d.Rows == nil {
		return nil, status.Error(codes.Unimplemented, "the schema is unknown before the statement runs")
	}
	return &flight.SchemaResult{Schema: flight.SerializeSchema(d.Rows, h.Alloc)}, nil
}

// PollFlightInfoStatement answers as often as the profile says that the query
// is under way. How often it has is in the descriptor that the client polls
// with next, where nothing looks for it but this.
func (h *handlers) PollFlightInfoStatement(ctx context.Context, q flightsql.StatementQuery, d *flight.FlightDescriptor) (*flight.PollInfo, error) {
	total := h.srv.profile.Polls
	done := 0
	if len(d.GetPath()) == 1 {
		_, _ = fmt.Sscan(d.GetPath()[0], &done)
	}
	if done >= total {
		info, err := h.GetFlightInfoStatement(ctx, q, d)
		if err != nil {
			return nil, err
		}
		return &flight.PollInfo{Info: info, Progress: h.progress(1)}, nil
	}
	select {
	case <-time.After(h.srv.profile.PollEvery):
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	packed, err := anypb.New(&pb.CommandStatementQuery{Query: q.GetQuery(), TransactionId: q.GetTransactionId()})
	if err != nil {
		return nil, err
	}
	cmd, err := proto.Marshal(packed)
	if err != nil {
		return nil, err
	}
	next := &flight.FlightDescriptor{Type: d.GetType(), Cmd: cmd, Path: []string{fmt.Sprint(done + 1)}}
	return &flight.PollInfo{FlightDescriptor: next, Progress: h.progress(float64(done+1) / float64(total+1))}, nil
}

func (h *handlers) progress(fraction float64) *float64 {
	if h.srv.profile.NoProgress {
		return nil
	}
	return &fraction
}
