package flightconn

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// byTicket answers the DoGet of ticket "k" with the rows 10k..10k+9.
func byTicket(ticket *pb.Ticket, s pb.FlightService_DoGetServer) error {
	k := int(ticket.GetTicket()[0] - '0')
	return sendValues(s, 10*k, 10*k+10)
}

func upTo(n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = int64(i)
	}
	return out
}

func TestSeveralEndpointsAreDeliveredInOrder(t *testing.T) {
	for _, schema := range []*arrow.Schema{int64Schema, nil} {
		f := &fake{info: infoOf(answer(schema, "0", "1", "2", "3", "4", "5", "6", "7", "8", "9")), get: byTicket}
		inBubble(t, f, func(b *bubble) {
			s, err := b.open().Query(b.Context(), "q", backend.Call{})
			require.NoError(b, err)
			require.Equal(b, upTo(100), values(b, s))
		})
	}
}

// TestASessionThatRunsOneStreamAtATimeDoesNotDeadlock has a server that holds
// its session until a stream is read to the end, and streams that are larger
// than all buffers on the way.
func TestASessionThatRunsOneStreamAtATimeDoesNotDeadlock(t *testing.T) {
	elsewhere, everywhere := answer(nil, "0", "1", "2", "3"), answer(nil, "0", "1", "2", "3")
	for i, e := range everywhere.Endpoint {
		e.Location = []*pb.Location{{Uri: "grpc://nobody:1"}, {Uri: "arrow-flight-reuse-connection://?"}}
		if i%2 == 0 {
			elsewhere.Endpoint[i].Location = e.Location
		}
	}
	for name, info := range map[string]*pb.FlightInfo{
		"all parts there":                        answer(nil, "0", "1", "2", "3"),
		"some after another location has failed": elsewhere,
		"all of them after that":                 everywhere,
	} {
		t.Run(name, func(t *testing.T) {
			const rows, batches = 200_000, 10
			var mu sync.Mutex
			f := &fake{info: infoOf(info)}
			f.get = func(ticket *pb.Ticket, s pb.FlightService_DoGetServer) error {
				return sendInTurn(&mu, ticket, s, rows, batches)
			}
			inBubble(t, f, func(b *bubble) {
				ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
				defer cancel()
				s, err := b.open().Query(ctx, "q", backend.Call{})
				require.NoError(b, err)
				defer s.Close()
				got := int64(0)
				for err == nil {
					var batch arrow.RecordBatch
					if batch, err = s.Next(); err == nil {
						got += batch.NumRows()
					}
				}
				require.ErrorIs(b, err, io.EOF)
				require.EqualValues(b, 4*rows*batches, got)
			}, func(cfg *Config) {
				dial := cfg.Dialer
				cfg.Dialer = func(ctx context.Context, addr string) (net.Conn, error) {
					if addr != here {
						time.Sleep(time.Second)
					}
					return dial(ctx, addr)
				}
			})
		})
	}
}

func TestReadingAheadIsBounded(t *testing.T) {
	f := &fake{info: infoOf(answer(nil, "0", "1"))}
	f.get = func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error {
		w := flight.NewRecordWriter(s, ipc.WithSchema(int64Schema))
		batch := int64Batch(make([]int64, 10_000)...) // 80 kB, more than a window
		defer batch.Release()
		for {
			if err := w.Write(batch); err != nil {
				return err
			}
		}
	}
	inBubble(t, f, func(b *bubble) {
		s, err := b.open().Query(b.Context(), "q", backend.Call{})
		require.NoError(b, err)
		_, err = s.Next()
		require.NoError(b, err)
		synctest.Wait() // everybody is blocked on us
		for i, p := range s.(*stream).mu.src.(*mergedSource).reading {
			require.Len(b, p.batches, DefaultPrefetch, "endpoint %d", i)
		}
		s.Close()
		synctest.Wait() // and nobody is left
		_, err = s.Next()
		require.ErrorIs(b, err, backend.ErrHandleClosed)
	})
}

func TestEndpointsThatDisagreeOnTheSchemaAreAnError(t *testing.T) {
	for name, field := range map[string]arrow.Field{
		"another name and type": {Name: "s", Type: arrow.BinaryTypes.String},
		"another name":          {Name: "s", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		"another type":          {Name: "n", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
	} {
		f := &fake{info: infoOf(answer(nil, "0", "1"))}
		f.get = func(ticket *pb.Ticket, s pb.FlightService_DoGetServer) error {
			if ticket.GetTicket()[0] == '1' {
				return flight.NewRecordWriter(s, ipc.WithSchema(arrow.NewSchema([]arrow.Field{field}, nil))).Close()
			}
			return sendBatches(s, 1)
		}
		inBubble(t, f, func(b *bubble) {
			s, err := b.open().Query(b.Context(), "q", backend.Call{})
			require.NoError(b, err)
			defer s.Close()
			_, err = s.Next()
			require.NoError(b, err)
			_, err = s.Next()
			require.ErrorIs(b, err, ErrSchemaMismatch, name)
			require.True(b, failure(b, err).Fault.KeepsConn())
		})
	}
}

func TestTheStreamsSchemaOverrulesAStaleFlightInfo(t *testing.T) {
	stale := arrow.NewSchema([]arrow.Field{{Name: "old", Type: arrow.BinaryTypes.String}}, nil)
	f := &fake{info: infoOf(answer(stale, "0"))}
	f.get = func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error { return sendBatches(s, 2) }
	inBubble(t, f, func(b *bubble) {
		s, err := b.open().Query(b.Context(), "q", backend.Call{})
		require.NoError(b, err)
		require.True(b, s.Schema().Equal(int64Schema))
		require.Equal(b, upTo(2), values(b, s))
	})
}

func TestAResultWithoutRowsKeepsItsSchema(t *testing.T) {
	empty := func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error { return sendBatches(s, 0) }
	silent := func(*pb.Ticket, pb.FlightService_DoGetServer) error { return nil }
	for name, f := range map[string]*fake{
		"no endpoint":                  {info: infoOf(answer(int64Schema))},
		"an empty stream":              {info: infoOf(answer(nil, "0")), get: empty},
		"several":                      {info: infoOf(answer(nil, "0", "1")), get: empty},
		"a stream without any message": {info: infoOf(answer(int64Schema, "0")), get: silent},
		"several of those":             {info: infoOf(answer(int64Schema, "0", "1")), get: silent},
	} {
		inBubble(t, f, func(b *bubble) {
			s, err := b.open().Query(b.Context(), "q", backend.Call{})
			require.NoError(b, err, name)
			require.True(b, s.Schema().Equal(int64Schema), name)
			require.Empty(b, values(b, s), name)
		})
	}
}

func TestGarbageIsAnErrorAndNeitherAPanicNorAHang(t *testing.T) {
	garbage := func(header, body string) func(*pb.Ticket, pb.FlightService_DoGetServer) error {
		return func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error {
			return s.Send(&pb.FlightData{DataHeader: []byte(header), DataBody: []byte(body)})
		}
	}
	truncated := func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error {
		return sendBatches(&mangle{s}, 2)
	}
	silent := func(*pb.Ticket, pb.FlightService_DoGetServer) error { return nil }
	noTicket := answer(int64Schema, "0")
	noTicket.Endpoint[0].Ticket = nil
	noTickets := answer(int64Schema, "0", "1")
	noTickets.Endpoint[1].Ticket = nil
	for name, f := range map[string]*fake{
		"neither endpoint nor schema": {info: infoOf(answer(nil))},
		"no schema anywhere":          {info: infoOf(answer(nil, "0")), get: silent},
		"no schema in several":        {info: infoOf(answer(nil, "0", "1")), get: silent},
		"bad schema in the info":      {info: infoOf(&pb.FlightInfo{Schema: []byte("garbage")})},
		"a nil ticket":                {info: infoOf(noTicket)},
		"a nil ticket among several":  {info: infoOf(noTickets), get: byTicket},
		"a bad header":                {info: infoOf(answer(nil, "0")), get: garbage("\xff\xff\xff\xff\x00garbage", "")},
		"a short header":              {info: infoOf(answer(nil, "0")), get: garbage("x", "y")},
		"a truncated body":            {info: infoOf(answer(nil, "0")), get: truncated},
	} {
		inBubble(t, f, func(b *bubble) {
			c := b.open()
			s, err := c.Query(b.Context(), "q", backend.Call{})
			for err == nil {
				_, err = s.Next()
			}
			require.NotErrorIs(b, err, io.EOF, name)
			require.Equal(b, backend.FaultUnknown, failure(b, err).Fault, "%s: %v", name, err)
			if s != nil {
				s.Close()
			}
		})
	}
}

// mangle cuts the bodies of what it sends.
type mangle struct{ pb.FlightService_DoGetServer }

func (m *mangle) Send(d *pb.FlightData) error {
	return m.FlightService_DoGetServer.Send(&pb.FlightData{DataHeader: d.DataHeader, DataBody: d.DataBody[:len(d.DataBody)/16]})
}

func at(info *pb.FlightInfo, uris ...string) *pb.FlightInfo {
	for _, e := range info.Endpoint {
		for _, uri := range uris {
			e.Location = append(e.Location, &pb.Location{Uri: uri})
		}
	}
	return info
}

func TestLocationsAreTriedInTurnWithTheConnectionsIdentity(t *testing.T) {
	var authorization metadata.MD
	remote := &fake{get: func(k *pb.Ticket, s pb.FlightService_DoGetServer) error {
		authorization, _ = metadata.FromIncomingContext(s.Context())
		return byTicket(k, s)
	}}
	f := &fake{info: infoOf(at(answer(int64Schema, "0"), "grpc://dead:1", "gopher://x", "grpc+tcp://remote:2"))}
	inBubble(t, f, func(b *bubble) {
		l := b.net.serve(b, "remote:2", remote)
		c := b.open()
		for range 3 {
			s, err := c.Query(b.Context(), "q", backend.Call{Headers: metadata.Pairs("x-call", "1")})
			require.NoError(b, err)
			require.Equal(b, upTo(10), values(b, s))
		}
		require.Equal(b, []string{"Bearer b"}, authorization.Get("authorization"))
		require.Equal(b, []string{"1"}, authorization.Get("x-call"))
		require.Equal(b, 1, l.Accepted(), "one client for all streams")
	}, func(cfg *Config) {
		cfg.Authorization = bearer("Bearer b")
		cfg.Locations = func(*url.URL) (allow, sendCredentials bool) { return true, true }
	})
}

func TestOurOwnAddressAndTheReuseLocationMeanOurOwnConnection(t *testing.T) {
	for _, uri := range []string{"arrow-flight-reuse-connection://?", "grpc://" + here, "grpc+tcp://" + here, "grpc://SERVER:1", "grpc://0.0.0.0:1", "grpc+tcp://[::]:1", ""} {
		f := &fake{info: infoOf(at(answer(int64Schema, "0", "1"), uri)), get: byTicket}
		inBubble(t, f, func(b *bubble) {
			s, err := b.open().Query(b.Context(), "q", backend.Call{})
			require.NoError(b, err)
			require.Equal(b, upTo(20), values(b, s), uri)
			require.Equal(b, 1, b.listener.Accepted(), uri)
		})
	}
}

func TestWhenNoLocationAnswersTheErrorNamesAllAndKeepsTheConnection(t *testing.T) {
	f := &fake{info: infoOf(at(answer(int64Schema, "0"), "grpc://dead:1", "grpc://silent:2", "ftp://x"))}
	inBubble(t, f, func(b *bubble) {
		c := b.open()
		b.endpoint.cfg.Dialer = func(ctx context.Context, addr string) (net.Conn, error) {
			if addr == "silent:2" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return b.net.dial(ctx, addr)
		}
		began := time.Now()
		_, err := c.Query(b.Context(), "q", backend.Call{})
		require.Equal(b, DefaultDialTimeout, time.Since(began))
		for _, uri := range []string{"grpc://dead:1", "grpc://silent:2", "ftp://x"} {
			require.ErrorContains(b, err, uri)
		}
		require.True(b, failure(b, err).Fault.KeepsConn())
		require.NoError(b, c.Ping(b.Context()))
	})
}

func TestAStatementThatFailsAtOneLocationIsNotTriedAtTheNext(t *testing.T) {
	tried := 0
	remote := &fake{get: func(*pb.Ticket, pb.FlightService_DoGetServer) error {
		tried++
		return status.Error(codes.InvalidArgument, "division by zero")
	}}
	f := &fake{info: infoOf(at(answer(int64Schema, "0"), "grpc://remote:2", "grpc://remote:3"))}
	inBubble(t, f, func(b *bubble) {
		b.net.serve(b, "remote:2", remote)
		b.net.serve(b, "remote:3", remote)
		_, err := b.open().Query(b.Context(), "q", backend.Call{})
		require.ErrorContains(b, err, "division by zero")
		require.Equal(b, 1, tried)
	})
}

// What a location may have executed before it failed is not sent to the next.
func TestAChangeIsExecutedAtOneLocation(t *testing.T) {
	for name, tc := range map[string]struct {
		first error // what the first location answers
		call  backend.Call
		tried int
		fails bool
	}{
		"a read":                       {status.Error(codes.Unavailable, "lost"), backend.Call{}, 2, false},
		"a change":                     {status.Error(codes.Unavailable, "lost"), backend.Call{MayChange: true}, 1, true},
		"a change, and too much of it": {status.Error(codes.ResourceExhausted, "no memory"), backend.Call{MayChange: true}, 1, true},
		"a credential is refused":      {status.Error(codes.Unauthenticated, "who are you?"), backend.Call{MayChange: true}, 2, false},
		"a credential ends midway":     {status.Error(codes.Unauthenticated, "who are you?"), backend.Call{MayChange: true, ChangesSeveral: true}, 1, true},
		"there is no such RPC midway":  {status.Error(codes.Unimplemented, "not implemented"), backend.Call{MayChange: true, ChangesSeveral: true}, 1, true},
		"there is no such RPC":         {status.Error(codes.Unimplemented, "no DoGet"), backend.Call{MayChange: true}, 2, false},
		"a page for a credential":      {status.Error(codes.Unauthenticated, "transport: the server has answered with HTTP status 401 and content type \"text/html\""), backend.Call{MayChange: true}, 1, true},
		"a page for no RPC":            {status.Error(codes.Unimplemented, "unexpected HTTP status code received from server: 404 (Not Found)"), backend.Call{MayChange: true}, 1, true},
		"nobody is there":              {nil, backend.Call{MayChange: true}, 1, false},
	} {
		tried := 0
		remote := &fake{get: func(ticket *pb.Ticket, s pb.FlightService_DoGetServer) error {
			if tried++; tried == 1 && tc.first != nil {
				return tc.first
			}
			return byTicket(ticket, s)
		}}
		f := &fake{info: infoOf(at(answer(int64Schema, "0"), "grpc://remote:2", "grpc://remote:3"))}
		inBubble(t, f, func(b *bubble) {
			if tc.first != nil {
				b.net.serve(b, "remote:2", remote)
			}
			b.net.serve(b, "remote:3", remote)
			s, err := b.open().Query(b.Context(), "q", tc.call)
			if require.Equal(b, tc.fails, err != nil, "%s: %v", name, err); err == nil {
				require.Equal(b, upTo(10), values(b, s), name)
			} else {
				require.ErrorContains(b, err, "1 more were not tried", name)
			}
			require.Equal(b, tc.tried, tried, name)
		})
	}
}

// What other parts of the result have sent says nothing of a location that nobody answers at.
func TestAChangeOfSeveralPartsPassesOverDeadLocations(t *testing.T) {
	info := answer(int64Schema, "0", "1", "2", "3")
	for i, e := range info.Endpoint {
		uris := []string{"grpc://remote:3"}
		if i%2 == 1 {
			uris = []string{"grpc://dead:1", "grpc://remote:3"}
		}
		for _, uri := range uris {
			e.Location = append(e.Location, &pb.Location{Uri: uri})
		}
	}
	inBubble(t, &fake{info: infoOf(info)}, func(b *bubble) {
		b.net.serve(b, "remote:3", &fake{get: byTicket})
		b.endpoint.cfg.Dialer = func(ctx context.Context, addr string) (net.Conn, error) {
			if addr == "dead:1" {
				time.Sleep(time.Second) // the others are faster
			}
			return b.net.dial(ctx, addr)
		}
		s, err := b.open().Query(b.Context(), "q", backend.Call{MayChange: true})
		require.NoError(b, err)
		require.Equal(b, upTo(40), values(b, s))
	})
}

func TestALocationsClientOutlivesItsStreamsAndIsClosedWhenUnused(t *testing.T) {
	remote := &fake{get: func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error {
		if err := sendValues(s, 0, 1); err != nil {
			return err
		}
		time.Sleep(3 * locationIdle)
		return sendValues(&headless{s}, 1, 2)
	}}
	f := &fake{info: infoOf(at(answer(int64Schema, "0"), "grpc://remote:2"))}
	inBubble(t, f, func(b *bubble) {
		l := b.net.serve(b, "remote:2", remote)
		c := b.open()
		s, err := c.Query(b.Context(), "q", backend.Call{})
		require.NoError(b, err)
		require.Equal(b, upTo(2), values(b, s), "a slow stream is not cut by the cache")
		time.Sleep(locationIdle - time.Second)
		require.Len(b, l.Conns(), 1)

		s, err = c.Query(b.Context(), "q", backend.Call{})
		require.NoError(b, err)
		s.Close()
		require.Equal(b, 1, l.Accepted())
		time.Sleep(locationIdle + time.Second)
		synctest.Wait()
		require.Empty(b, l.Conns())
	})
}

// headless drops the schema message, which was sent before.
type headless struct{ pb.FlightService_DoGetServer }

func (h *headless) Send(d *pb.FlightData) error {
	if len(d.DataBody) == 0 {
		return nil
	}
	return h.FlightService_DoGetServer.Send(d)
}

func TestAStreamThatDiesAtALocationKeepsTheConnection(t *testing.T) {
	remote := &fake{get: func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error {
		_ = sendBatches(s, 1)
		return status.Error(codes.Unavailable, "the location went away")
	}}
	f := &fake{info: infoOf(at(answer(int64Schema, "0"), "grpc://remote:2"))}
	inBubble(t, f, func(b *bubble) {
		b.net.serve(b, "remote:2", remote)
		s, err := b.open().Query(b.Context(), "q", backend.Call{})
		require.NoError(b, err)
		defer s.Close()
		_, err = s.Next()
		require.NoError(b, err)
		_, err = s.Next()
		require.ErrorContains(b, err, "went away")
		require.ErrorContains(b, err, "remote:2")
		require.True(b, failure(b, err).Fault.KeepsConn())
	})
}

func TestBatchesOfAClosedResultAreReleased(t *testing.T) {
	f := &fake{info: infoOf(answer(nil, "0", "1", "2"))}
	f.get = func(k *pb.Ticket, s pb.FlightService_DoGetServer) error {
		n := int(k.GetTicket()[0] - '0')
		return sendValues(s, 10*n, 10*n+10, ipc.WithLZ4()) // decompressed into the allocator
	}
	inBubble(t, f, func(b *bubble) {
		mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
		b.endpoint.cfg.Allocator = mem
		c := b.open()
		for read := range 15 {
			s, err := c.Query(b.Context(), "q", backend.Call{})
			require.NoError(b, err)
			for range read {
				_, err = s.Next()
				require.NoError(b, err)
			}
			s.Close()
			s.Close()
		}
		synctest.Wait()
		mem.AssertSize(b, 0)
	})
}

func TestCloseDuringNextIsSafe(t *testing.T) {
	for _, tickets := range [][]string{{"0"}, {"0", "1"}} {
		f := &fake{info: infoOf(answer(nil, tickets...))}
		f.get = func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error {
			_ = sendBatches(s, 1)
			return silence(s.Context())
		}
		inBubble(t, f, func(b *bubble) {
			s, err := b.open().Query(b.Context(), "q", backend.Call{})
			require.NoError(b, err)
			_, err = s.Next()
			require.NoError(b, err)
			var next sync.WaitGroup
			next.Go(func() {
				_, err := s.Next()
				require.ErrorIs(b, err, backend.ErrHandleClosed, fmt.Sprint(tickets))
			})
			synctest.Wait()
			s.Close()
			next.Wait()
		})
	}
}

// TestLengthsThatWouldExhaustMemoryAreRefused has messages whose claimed
// lengths would end the process if they were believed.
func TestLengthsThatWouldExhaustMemoryAreRefused(t *testing.T) {
	var chunks []*pb.FlightData
	e := newEncoder(nil, int64Schema, DefaultRequestLimit, ipc.WithLZ4())
	batch := int64Batch(make([]int64, 1000)...)
	defer batch.Release()
	chunks, err := e.flightData(batch)
	require.NoError(t, err)
	e.close()
	binary.LittleEndian.PutUint64(chunks[1].DataBody, 1<<40) // the decompressed size

	f := &fake{info: infoOf(answer(nil, "0"))}
	f.get = func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error {
		for _, chunk := range chunks {
			if err := s.Send(chunk); err != nil {
				return err
			}
		}
		return nil
	}
	inBubble(t, f, func(b *bubble) {
		s, err := b.open().Query(b.Context(), "q", backend.Call{})
		require.NoError(b, err)
		defer s.Close()
		_, err = s.Next()
		require.Equal(b, backend.FaultUnknown, failure(b, err).Fault)
		require.ErrorContains(b, err, "claims to be")
	})

	header := chunks[0].DataHeader
	_, err = verifyMessage(header, nil, 0)
	require.NoError(t, err)
	refused := 0
	for at := 0; at+4 <= len(header); at += 4 {
		bad := bytes.Clone(header)
		binary.LittleEndian.PutUint32(bad[at:], 1<<30)
		if _, err := verifyMessage(bad, nil, 0); err != nil {
			refused++
		}
	}
	require.Greater(t, refused, 5, "offsets and lengths alike")
}

// Batches have the schema of their result, whatever an endpoint says of a field besides.
func TestBatchesOfEveryEndpointHaveTheSchemaOfTheResult(t *testing.T) {
	for name, c := range map[string]struct {
		second arrow.Field
		null   bool // the value of the second endpoint
		fails  bool
	}{
		"the same":            {second: arrow.Field{}},
		"other metadata":      {second: arrow.Field{Metadata: arrow.NewMetadata([]string{"node"}, []string{"2"})}},
		"nullable":            {second: arrow.Field{Nullable: true}},
		"nullable and a NULL": {second: arrow.Field{Nullable: true}, null: true, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{info: infoOf(answer(nil, "0", "1"))}
			f.get = func(ticket *pb.Ticket, s pb.FlightService_DoGetServer) error {
				field, null := arrow.Field{}, false
				if ticket.GetTicket()[0] == '1' {
					field, null = c.second, c.null
				}
				field.Name, field.Type = "n", arrow.PrimitiveTypes.Int64
				values := array.NewInt64Builder(memory.DefaultAllocator)
				values.AppendValues([]int64{1}, []bool{!null})
				schema := arrow.NewSchema([]arrow.Field{field}, nil)
				return flight.NewRecordWriter(s, ipc.WithSchema(schema)).Write(array.NewRecordBatch(schema, []arrow.Array{values.NewArray()}, 1))
			}
			inBubble(t, f, func(b *bubble) {
				s, err := b.open().Query(b.Context(), "q", backend.Call{})
				require.NoError(b, err)
				defer s.Close()
				for range 2 {
					var batch arrow.RecordBatch
					if batch, err = s.Next(); err == nil {
						require.True(b, batch.Schema().Equal(s.Schema()), "%v is not %v", batch.Schema(), s.Schema())
					}
				}
				if !c.fails {
					require.NoError(b, err)
					return
				}
				require.ErrorIs(b, err, ErrSchemaMismatch)
			})
		})
	}
}

// sendInTurn sends large batches as a server does that serves one stream at a time, of which that of ticket 0 comes last.
func sendInTurn(mu *sync.Mutex, ticket *pb.Ticket, s pb.FlightService_DoGetServer, rows, batches int) error {
	if ticket.GetTicket()[0] == '0' {
		time.Sleep(time.Second) // let the others go first, if they can
	}
	for !mu.TryLock() {
		time.Sleep(time.Millisecond)
		if s.Context().Err() != nil {
			return s.Context().Err()
		}
	}
	defer mu.Unlock()
	return sendLarge(s, rows, batches)
}

func sendLarge(s pb.FlightService_DoGetServer, rows, batches int) error {
	w := flight.NewRecordWriter(s, ipc.WithSchema(int64Schema))
	batch := int64Batch(make([]int64, rows)...)
	defer batch.Release()
	for range batches {
		if err := w.Write(batch); err != nil {
			return err
		}
	}
	return nil
}
