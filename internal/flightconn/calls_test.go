package flightconn

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// A seamCall is one of the seam's, with what it is made with, and what the
// server's answer to it is not looked at for.
type seamCall struct {
	call    func(ctx context.Context, b *bubble, c *Conn, p backend.Prepared) error
	ignores bool // the content of the answer
	headers bool // the call takes some
}

// seamCalls are all calls that go to the server and come to an end.
func seamCalls() map[string]seamCall {
	drained := func(b *bubble, s backend.Stream, err error) error {
		if err == nil {
			values(b, s)
		}
		return err
	}
	bad := backend.Call{Headers: metadata.MD{"x y": {"1"}}}
	of := func(ctx context.Context) backend.Call {
		if ctx.Value(badHeaders{}) != nil {
			return bad
		}
		return backend.Call{}
	}
	return map[string]seamCall{
		"Query": {headers: true, ignores: true, call: func(ctx context.Context, b *bubble, c *Conn, _ backend.Prepared) error {
			s, err := c.Query(ctx, "q", of(ctx))
			return drained(b, s, err)
		}},
		"Metadata": {headers: true, ignores: true, call: func(ctx context.Context, b *bubble, c *Conn, _ backend.Prepared) error {
			s, err := c.Metadata(ctx, backend.MetadataRequest{Kind: backend.MetadataCatalogs}, of(ctx))
			return drained(b, s, err)
		}},
		"Update": {headers: true, call: func(ctx context.Context, _ *bubble, c *Conn, _ backend.Prepared) error {
			_, err := c.Update(ctx, "u", of(ctx))
			return err
		}},
		"Prepare": {headers: true, call: func(ctx context.Context, _ *bubble, c *Conn, _ backend.Prepared) error {
			_, err := c.Prepare(ctx, "p", of(ctx))
			return err
		}},
		"PreparedQuery": {headers: true, ignores: true, call: func(ctx context.Context, b *bubble, _ *Conn, p backend.Prepared) error {
			s, err := p.Query(ctx, nil, of(ctx))
			return drained(b, s, err)
		}},
		"bound PreparedQuery": {headers: true, call: func(ctx context.Context, b *bubble, _ *Conn, p backend.Prepared) error {
			batch := texts("x")
			defer batch.Release()
			s, err := p.Query(ctx, batch, of(ctx))
			return drained(b, s, err)
		}},
		"PreparedUpdate": {headers: true, call: func(ctx context.Context, _ *bubble, _ *Conn, p backend.Prepared) error {
			_, err := p.Update(ctx, nil, of(ctx))
			return err
		}},
		"PreparedClose": {ignores: true, call: func(ctx context.Context, _ *bubble, _ *Conn, p backend.Prepared) error { return p.Close(ctx) }},
		"Ingest": {headers: true, call: func(ctx context.Context, b *bubble, c *Conn, _ backend.Prepared) error {
			batch := texts("x")
			defer batch.Release()
			rows, err := array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch})
			require.NoError(b, err)
			defer rows.Release()
			_, err = c.Ingest(ctx, rows, backend.IngestOptions{Table: "t"}, of(ctx))
			return err
		}},
		"Begin": {call: func(ctx context.Context, _ *bubble, c *Conn, _ backend.Prepared) error {
			_, err := c.Begin(ctx)
			return err
		}},
		"RejectsUnknownTx": {call: func(ctx context.Context, _ *bubble, c *Conn, _ backend.Prepared) error {
			_, err := c.RejectsUnknownTx(ctx)
			return err
		}},
		"RepeatsQueries": {call: func(ctx context.Context, _ *bubble, c *Conn, _ backend.Prepared) error {
			_, err := c.RepeatsQueries(ctx)
			return err
		}},
		"EndTx": {ignores: true, call: func(ctx context.Context, _ *bubble, c *Conn, _ backend.Prepared) error {
			return c.EndTx(ctx, "tx", true)
		}},
		"Savepoint": {call: func(ctx context.Context, _ *bubble, c *Conn, _ backend.Prepared) error {
			_, err := c.Savepoint(ctx, "tx", "s")
			return err
		}},
		"EndSavepoint": {ignores: true, call: func(ctx context.Context, _ *bubble, c *Conn, _ backend.Prepared) error {
			return c.EndSavepoint(ctx, "sp", backend.SavepointRelease)
		}},
		"SetOptions": {call: func(ctx context.Context, _ *bubble, c *Conn, _ backend.Prepared) error {
			return c.SetOptions(ctx, map[string]any{"o": 1})
		}},
		"Options": {call: func(ctx context.Context, _ *bubble, c *Conn, _ backend.Prepared) error {
			_, err := c.Options(ctx)
			return err
		}},
		"Ping": {ignores: true, call: func(ctx context.Context, _ *bubble, c *Conn, _ backend.Prepared) error { return c.Ping(ctx) }},
	}
}

type badHeaders struct{}

// anyServer does whatever it is asked, until it answers otherwise.
type anyServer struct {
	refuse  error
	garbage bool
}

func (s *anyServer) fake() *fake {
	var closed []string
	prepare := preparing(nil, &closed)
	f := &fake{get: byTicket}
	f.info = func(context.Context, *pb.FlightDescriptor) (*pb.FlightInfo, error) {
		return answer(int64Schema, "0"), s.refuse
	}
	f.put = func(put pb.FlightService_DoPutServer) error {
		if s.refuse != nil {
			return s.refuse
		}
		for err := error(nil); err == nil; {
			_, err = put.Recv()
		}
		if s.garbage {
			return put.Send(&pb.PutResult{AppMetadata: []byte("\xff")})
		}
		return put.Send(counted(1))
	}
	f.action = func(a *pb.Action, stream pb.FlightService_DoActionServer) error {
		switch {
		case s.refuse != nil:
			return s.refuse
		case s.garbage:
			return stream.Send(&pb.Result{Body: []byte("\xff")})
		}
		switch a.GetType() {
		case "BeginTransaction":
			return stream.Send(&pb.Result{Body: pack(&pb.ActionBeginTransactionResult{TransactionId: []byte("tx")})})
		case "BeginSavepoint":
			return stream.Send(&pb.Result{Body: pack(&pb.ActionBeginSavepointResult{SavepointId: []byte("sp")})})
		case "CreatePreparedStatement", "ClosePreparedStatement":
			return prepare(a, stream)
		default:
			return nil
		}
	}
	return f
}

// However a call ends, it says so, and nothing of it is under way afterwards.
func TestACallThatEndsSaysHowAndLeavesNothing(t *testing.T) {
	for name, end := range map[string]struct {
		server anyServer
		before func(b *bubble, c *Conn)
		ctx    func(ctx context.Context) (context.Context, context.CancelFunc)
		want   func(seamCall) (backend.Fault, bool) // false: no error
	}{
		"well": {want: func(seamCall) (backend.Fault, bool) { return 0, false }},
		"refused": {
			server: anyServer{refuse: status.Error(codes.AlreadyExists, "refused")},
			want:   func(seamCall) (backend.Fault, bool) { return backend.FaultStatement, true },
		},
		"answered by garbage": {
			server: anyServer{garbage: true},
			want:   func(c seamCall) (backend.Fault, bool) { return backend.FaultUnknown, !c.ignores },
		},
		"late": {
			ctx:  func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, -1) },
			want: func(seamCall) (backend.Fault, bool) { return backend.FaultContext, true },
		},
		"without a connection": {
			before: func(b *bubble, c *Conn) { b.listener.Conns()[0].Cut(); <-lostOf(c) },
			want:   func(seamCall) (backend.Fault, bool) { return backend.FaultTransport, true },
		},
		"closed": {
			before: func(b *bubble, c *Conn) { require.NoError(b, c.Close()) },
			want:   func(seamCall) (backend.Fault, bool) { return backend.FaultTransport, true },
		},
		"with headers that cannot be sent": {
			ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithValue(ctx, badHeaders{}, true), func() {}
			},
			want: func(c seamCall) (backend.Fault, bool) { return backend.FaultUsage, c.headers },
		},
	} {
		calls := seamCalls()
		for _, op := range slices.Sorted(maps.Keys(calls)) {
			call := calls[op]
			t.Run(fmt.Sprintf("%s %s", op, name), func(t *testing.T) {
				server := &anyServer{}
				inBubble(t, server.fake(), func(b *bubble) {
					c := b.open()
					p, err := c.Prepare(b.Context(), "p", backend.Call{})
					require.NoError(b, err)
					*server = end.server
					if end.before != nil {
						end.before(b, c)
					}
					ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
					if end.ctx != nil {
						ctx, cancel = end.ctx(ctx)
					}
					defer cancel()
					err = call.call(ctx, b, c, p)
					if op == "Ping" && name == "refused" {
						require.NoError(b, err, "an answer is an answer")
					} else if fault, fails := end.want(call); fails {
						require.Equal(b, fault, backend.FaultIn(err), "%v", err)
						require.Equal(b, here, failure(b, err).Target)
					} else {
						require.NoError(b, err)
					}
					c.mu.Lock()
					defer c.mu.Unlock()
					require.Empty(b, c.mu.running, "it is still counted")
				})
			})
		}
	}
}

func lostOf(c *Conn) <-chan struct{} {
	lost := make(chan struct{})
	c.OnLost(func(error) { close(lost) })
	return lost
}

// What is too large for one message is found before anything is sent, at its
// first byte too many.
func TestAStatementMayBeAsLargeAsTheLimit(t *testing.T) {
	server := &anyServer{}
	inBubble(t, server.fake(), func(b *bubble) {
		c := b.open()
		for name, call := range map[string]func(text string) error{
			"Update":  func(text string) error { _, err := c.Update(b.Context(), text, backend.Call{}); return err },
			"Prepare": func(text string) error { _, err := c.Prepare(b.Context(), text, backend.Call{}); return err },
		} {
			fits, limit := 0, c.cfg().RequestLimit
			for size := limit - 200; size <= limit; size++ {
				err := call(string(make([]byte, size)))
				if err == nil {
					require.Equal(b, max(fits, size-1), size-1, "%s: the sizes that fit are together", name)
					fits = size
					continue
				}
				require.Equal(b, backend.FaultUsage, failure(b, err).Fault)
				require.ErrorContains(b, err, fmt.Sprint(limit))
				require.ErrorContains(b, err, fmt.Sprintf("is %d bytes", limit+size-fits), name)
			}
			require.NotZero(b, fits, name)
		}
	}, func(cfg *Config) { cfg.RequestLimit = minRequestLimit })
}
