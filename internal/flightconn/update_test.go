package flightconn

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// taken is what a DoPut received.
type taken struct {
	desc    *pb.FlightDescriptor
	sizes   []int // of the messages
	rows    []string
	schema  *arrow.Schema
	batches int
}

// take reads a DoPut to its end.
func take(s pb.FlightService_DoPutServer) (*taken, error) {
	in := &taken{}
	counted := &counting{FlightService_DoPutServer: s, taken: in}
	rd, err := flight.NewRecordReader(counted)
	if err != nil {
		return nil, err
	}
	defer rd.Release()
	in.schema = rd.Schema()
	for rd.Next() {
		in.batches++
		batch := rd.RecordBatch()
		for i := range int(batch.NumRows()) {
			in.rows = append(in.rows, batch.Column(0).ValueStr(i))
		}
	}
	return in, rd.Err()
}

type counting struct {
	pb.FlightService_DoPutServer
	*taken
}

func (c *counting) Recv() (*pb.FlightData, error) {
	d, err := c.FlightService_DoPutServer.Recv()
	if err == nil {
		c.sizes = append(c.sizes, proto.Size(d))
		if c.desc == nil {
			c.desc = d.GetFlightDescriptor()
		}
	}
	return d, err
}

func counted(n int64) *pb.PutResult {
	data, _ := proto.Marshal(&pb.DoPutUpdateResult{RecordCount: n})
	return &pb.PutResult{AppMetadata: data}
}

func texts(values ...string) arrow.RecordBatch {
	schema := arrow.NewSchema([]arrow.Field{{Name: "s", Type: arrow.BinaryTypes.String}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	b.Field(0).(*array.StringBuilder).AppendValues(values, nil)
	return b.NewRecordBatch()
}

func TestUpdateGoesByDoPutOnceAndCounts(t *testing.T) {
	var got pb.CommandStatementUpdate
	f := &fake{}
	f.put = func(s pb.FlightService_DoPutServer) error {
		d, err := s.Recv()
		if err != nil {
			return err
		}
		if err := unpack(d.GetFlightDescriptor().GetCmd(), &got); err != nil {
			return err
		}
		return s.Send(counted(7))
	}
	inBubble(t, f, func(b *bubble) {
		c := b.open()
		plans := f.plans.Load()
		n, err := c.Update(b.Context(), "insert", backend.Call{Tx: "tx"})
		require.NoError(b, err)
		require.EqualValues(b, 7, n)
		require.Equal(b, "insert", got.GetQuery())
		require.Equal(b, "tx", string(got.GetTransactionId()))
		require.Equal(b, plans, f.plans.Load(), "nothing is planned")

		const calls = 50
		synctest.Wait()
		before := runtime.NumGoroutine() // of the process: the runtime begins some of its own at any time
		for range calls {
			_, err = c.Update(b.Context(), "insert", backend.Call{})
			require.NoError(b, err)
			require.Nil(b, got.TransactionId, "outside of transactions the field is absent")
		}
		synctest.Wait()
		require.Less(b, runtime.NumGoroutine(), before+calls/2, "no call leaves a goroutine")
	})
}

func TestAnUpdateThatFailsAfterItsCountHasFailed(t *testing.T) {
	f := &fake{put: func(s pb.FlightService_DoPutServer) error {
		_ = s.Send(counted(7))
		return status.Error(codes.Internal, "duckdb error: [23505] duplicate key")
	}}
	inBubble(t, f, func(b *bubble) {
		c := b.open()
		_, err := c.Update(b.Context(), "insert", backend.Call{})
		e := failure(b, err)
		require.Equal(b, backend.FaultStatement, e.Fault)
		require.Equal(b, "23505", e.SQLState)
		require.False(b, e.Unsent)
		require.NoError(b, c.Ping(b.Context()))
	})
}

func TestAnUpdateWithoutACountGivesMinusOne(t *testing.T) {
	f := &fake{put: func(pb.FlightService_DoPutServer) error { return nil }}
	inBubble(t, f, func(b *bubble) {
		n, err := b.open().Update(b.Context(), "u", backend.Call{})
		require.NoError(b, err)
		require.EqualValues(b, -1, n)
	})
}

func TestAStatementAboveTheMessageLimitIsNotSent(t *testing.T) {
	inBubble(t, &fake{}, func(b *bubble) {
		c := b.open()
		plans := b.fake.plans.Load()
		huge := strings.Repeat("x", DefaultRequestLimit)
		_, err := c.Update(b.Context(), huge, backend.Call{})
		require.Equal(b, backend.FaultUsage, failure(b, err).Fault)
		_, err = c.Query(b.Context(), huge, backend.Call{})
		require.Equal(b, backend.FaultUsage, failure(b, err).Fault)
		_, err = c.Prepare(b.Context(), huge, backend.Call{})
		require.Equal(b, backend.FaultUsage, failure(b, err).Fault)
		require.Zero(b, b.fake.puts.Load())
		require.Equal(b, plans, b.fake.plans.Load())
	})
}

// preparing answers the actions of prepared statements.
func preparing(params *arrow.Schema, closed *[]string) func(*pb.Action, pb.FlightService_DoActionServer) error {
	return func(a *pb.Action, s pb.FlightService_DoActionServer) error {
		switch a.GetType() {
		case "CreatePreparedStatement":
			reply := &pb.ActionCreatePreparedStatementResult{PreparedStatementHandle: []byte("h1")}
			if params != nil {
				reply.ParameterSchema = flight.SerializeSchema(params, memory.DefaultAllocator)
			}
			return s.Send(&pb.Result{Body: pack(reply)})
		case "ClosePreparedStatement":
			var req pb.ActionClosePreparedStatementRequest
			if err := unpack(a.GetBody(), &req); err != nil {
				return err
			}
			*closed = append(*closed, string(req.GetPreparedStatementHandle()))
			return nil
		}
		return status.Error(codes.Unimplemented, a.GetType())
	}
}

func TestABoundQueryUsesTheHandleThatTheBindReturned(t *testing.T) {
	var closed []string
	var planned pb.CommandPreparedStatementQuery
	f := &fake{action: preparing(nil, &closed)}
	f.put = func(s pb.FlightService_DoPutServer) error {
		if _, err := take(s); err != nil {
			return err
		}
		data, _ := proto.Marshal(&pb.DoPutPreparedStatementResult{PreparedStatementHandle: []byte("h2")})
		return s.Send(&pb.PutResult{AppMetadata: data})
	}
	f.info = func(_ context.Context, d *pb.FlightDescriptor) (*pb.FlightInfo, error) {
		if isProbe(d) {
			return &pb.FlightInfo{}, nil
		}
		return answer(int64Schema, "0"), unpack(d.GetCmd(), &planned)
	}
	f.get = byTicket
	inBubble(t, f, func(b *bubble) {
		p, err := b.open().Prepare(b.Context(), "select ?", backend.Call{})
		require.NoError(b, err)
		require.Nil(b, p.ParameterSchema())
		batch := texts("x")
		defer batch.Release()
		s, err := p.Query(b.Context(), batch, backend.Call{})
		require.NoError(b, err)
		require.Equal(b, upTo(10), values(b, s))
		require.Equal(b, "h2", string(planned.GetPreparedStatementHandle()))
		require.NoError(b, p.Close(b.Context()))
		require.NoError(b, p.Close(b.Context()))
		require.Equal(b, []string{"h2"}, closed)
		_, err = p.Update(b.Context(), nil, backend.Call{})
		require.ErrorIs(b, err, backend.ErrHandleClosed)
	})
}

func TestParametersAreSplitByTheirMeasuredSize(t *testing.T) {
	var got *taken
	var closed []string
	f := &fake{action: preparing(nil, &closed)}
	f.put = func(s pb.FlightService_DoPutServer) (err error) {
		if got, err = take(s); err != nil {
			return err
		}
		return s.Send(counted(int64(len(got.rows))))
	}
	const limit = minRequestLimit
	inBubble(t, f, func(b *bubble) {
		p, err := b.open().Prepare(b.Context(), "insert ?", backend.Call{})
		require.NoError(b, err)
		var rows []string // uneven: a guess from the mean would be wrong
		for i := range 500 {
			rows = append(rows, strings.Repeat(string(rune('a'+i%26)), i%7*100))
		}
		batch := texts(rows...)
		defer batch.Release()
		n, err := p.Update(b.Context(), batch, backend.Call{})
		require.NoError(b, err)
		require.EqualValues(b, 500, n)
		require.Equal(b, rows, got.rows, "every row once, in order")
		for _, size := range got.sizes {
			require.LessOrEqual(b, size, limit)
		}
		require.Less(b, got.batches, 100, "and not one by one")
		require.EqualValues(b, 1, f.puts.Load(), "one statement, one RPC")

		large := texts("small", strings.Repeat("x", limit))
		defer large.Release()
		_, err = p.Update(b.Context(), large, backend.Call{})
		e := failure(b, err)
		require.Equal(b, backend.FaultUsage, e.Fault)
		require.ErrorContains(b, err, "row 1")
		require.True(b, e.Unsent)
		require.EqualValues(b, 1, f.puts.Load(), "nothing was sent")
	}, func(cfg *Config) { cfg.RequestLimit = limit })
}

func TestParametersOfTheWrongNumberAreNotSent(t *testing.T) {
	var closed []string
	inBubble(t, &fake{action: preparing(int64Schema, &closed)}, func(b *bubble) {
		p, err := b.open().Prepare(b.Context(), "select ?", backend.Call{})
		require.NoError(b, err)
		require.True(b, p.ParameterSchema().Equal(int64Schema))
		two := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64}, {Name: "b", Type: arrow.PrimitiveTypes.Int64}}, nil)
		date := arrow.NewSchema([]arrow.Field{{Name: "d", Type: arrow.FixedWidthTypes.Date32}}, nil)
		for _, schema := range []*arrow.Schema{two, int64Schema} {
			builder := array.NewRecordBuilder(memory.DefaultAllocator, schema)
			if schema != int64Schema { // which is left without rows
				for _, field := range builder.Fields() {
					field.AppendNull()
				}
			}
			batch := builder.NewRecordBatch()
			builder.Release()
			_, err = p.Query(b.Context(), batch, backend.Call{})
			require.Equal(b, backend.FaultUsage, failure(b, err).Fault, schema)
			require.True(b, failure(b, err).Unsent)
			batch.Release()
		}
		require.Zero(b, b.fake.puts.Load())
		dates := array.NewRecordBuilder(memory.DefaultAllocator, date)
		defer dates.Release()
		dates.Field(0).AppendNull()
		for _, other := range []arrow.RecordBatch{texts("7"), dates.NewRecordBatch()} { // types are the server's to judge
			_, err = p.Query(b.Context(), other, backend.Call{})
			require.Equal(b, backend.FaultUnsupported, failure(b, err).Fault)
			other.Release()
		}
		require.EqualValues(b, 2, b.fake.puts.Load())
	})
}

func TestIngestSplitsCompressesAndCarriesItsTransaction(t *testing.T) {
	var got *taken
	var cmd pb.CommandStatementIngest
	f := &fake{}
	f.put = func(s pb.FlightService_DoPutServer) (err error) {
		if got, err = take(s); err != nil {
			return err
		}
		if err := unpack(got.desc.GetCmd(), &cmd); err != nil {
			return err
		}
		return s.Send(counted(int64(len(got.rows))))
	}
	for _, compression := range []backend.IngestCompression{backend.IngestUncompressed, backend.IngestLZ4, backend.IngestZSTD} {
		inBubble(t, f, func(b *bubble) {
			first := texts(strings.Repeat("a", 3000), strings.Repeat("b", 3000))
			second := texts("c")
			defer first.Release()
			defer second.Release()
			rows, err := array.NewRecordReader(first.Schema(), []arrow.RecordBatch{first, second})
			require.NoError(b, err)
			defer rows.Release()
			n, err := b.open().Ingest(b.Context(), rows,
				backend.IngestOptions{Table: "t", Mode: backend.IngestReplace, Temporary: true, Compression: compression}, backend.Call{Tx: "tx"})
			require.NoError(b, err)
			require.EqualValues(b, 3, n)
			require.Equal(b, []string{strings.Repeat("a", 3000), strings.Repeat("b", 3000), "c"}, got.rows)
			require.Equal(b, "tx", string(cmd.GetTransactionId()))
			require.True(b, cmd.GetTemporary())
			require.Equal(b, pb.CommandStatementIngest_TableDefinitionOptions_TABLE_EXISTS_OPTION_REPLACE, cmd.GetTableDefinitionOptions().GetIfExists())
			if compression == backend.IngestUncompressed {
				require.Equal(b, 3, got.batches)
			} else {
				require.Equal(b, 2, got.batches, "what is compressed fits")
			}
		}, func(cfg *Config) { cfg.RequestLimit = minRequestLimit })
	}
}

func TestIngestWithoutRowsSendsTheSchemaOfEveryType(t *testing.T) {
	var got *taken
	f := &fake{}
	f.put = func(s pb.FlightService_DoPutServer) (err error) {
		if got, err = take(s); err != nil {
			return err
		}
		return s.Send(counted(0))
	}
	every := everyType(t)
	defer every.Release()
	types := []arrow.DataType{&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.ListOf(arrow.PrimitiveTypes.Int32)}}
	for _, field := range every.Schema().Fields() {
		types = append(types, field.Type)
	}
	inBubble(t, f, func(b *bubble) {
		c := b.open()
		for _, dt := range types {
			schema := arrow.NewSchema([]arrow.Field{{Name: "x", Type: dt, Nullable: true}}, nil)
			empty := array.NewRecordBatch(schema, []arrow.Array{array.MakeArrayOfNull(memory.DefaultAllocator, dt, 0)}, 0)
			rows, err := array.NewRecordReader(schema, []arrow.RecordBatch{empty})
			require.NoError(b, err)
			n, err := c.Ingest(b.Context(), rows, backend.IngestOptions{Table: "t"}, backend.Call{})
			require.NoError(b, err, "%v", dt)
			require.Zero(b, n)
			require.True(b, got.schema.Equal(schema), "%v", dt)
			rows.Release()
		}
	})
}

func TestIngestOfRowsThatFailSendsNoEnd(t *testing.T) {
	broken := errors.New("the file is corrupt")
	ended := false
	f := &fake{}
	f.put = func(s pb.FlightService_DoPutServer) error {
		_, err := take(s)
		ended = err == nil
		return err
	}
	inBubble(t, f, func(b *bubble) {
		rows := &brokenReader{RecordReader: emptyReader(b), batch: int64Batch(1), err: broken}
		_, err := b.open().Ingest(b.Context(), rows, backend.IngestOptions{Table: "t"}, backend.Call{})
		require.ErrorIs(b, err, broken)
		synctest.Wait()
		require.False(b, ended, "the server must not take half of the rows for all")
	})
}

// A server of Arrow's C++ library takes a stream that is cut for one that has ended (its reader has no word for the
// difference), and refuses a message in which it does not find what it expects.
func TestRowsThatFailAreNotStoredInPart(t *testing.T) {
	for name, transport := range transports {
		stored, refused := 0, 0
		f := &fake{put: func(s pb.FlightService_DoPutServer) error {
			var schema []byte
			for n := 0; ; n++ {
				m, err := s.Recv()
				if err != nil {
					stored = n
					return s.Send(counted(1))
				}
				if n == 0 {
					schema = m.GetDataHeader()
				} else if bytes.Equal(m.GetDataHeader(), schema) {
					refused++
					return status.Error(codes.Internal, "Header-type of flatbuffer-encoded Message is not RecordBatch.")
				}
			}
		}}
		inBubble(t, f, func(b *bubble) {
			broken := errors.New("the file is corrupt")
			rows := &brokenReader{RecordReader: emptyReader(b), batch: int64Batch(1), err: broken}
			_, err := b.open().Ingest(b.Context(), rows, backend.IngestOptions{Table: "t"}, backend.Call{})
			require.ErrorIs(b, err, broken, name)
			require.False(b, failure(b, err).Unsent, name)
			require.False(b, failure(b, err).Running, "%s: it has ended", name)
			synctest.Wait()
			require.Equal(b, []int{0, 1}, []int{stored, refused}, name)
		}, transport)
	}
}

// One that does not answer keeps nobody waiting.
func TestRowsThatFailAreToldInTime(t *testing.T) {
	f := &fake{put: func(s pb.FlightService_DoPutServer) error { <-s.Context().Done(); return s.Context().Err() }}
	inBubble(t, f, func(b *bubble) {
		broken, began := errors.New("the file is corrupt"), time.Now()
		rows := &brokenReader{RecordReader: emptyReader(b), batch: int64Batch(1), err: broken}
		_, err := b.open().Ingest(b.Context(), rows, backend.IngestOptions{Table: "t"}, backend.Call{})
		require.ErrorIs(b, err, broken)
		require.True(b, failure(b, err).Running)
		require.Equal(b, spoilTimeout, time.Since(began))
		ctx, stop := context.WithTimeout(b.Context(), spoilTimeout/2)
		defer stop()
		rows = &brokenReader{RecordReader: emptyReader(b), batch: int64Batch(1), err: broken}
		_, err = b.open().Ingest(ctx, rows, backend.IngestOptions{Table: "t"}, backend.Call{})
		require.Error(b, err)
		require.Equal(b, spoilTimeout*3/2, time.Since(began))
	})
}

// leftRows is the error of rows that have ended since their caller has left.
type leftRows struct{ error }

func (leftRows) CallerLeft() {}

// Where the caller has left, the server has until the end of the call.
func TestRowsThatAreLeftWaitForTheirServer(t *testing.T) {
	for name, tc := range map[string]struct {
		needs   time.Duration
		took    time.Duration
		running bool
	}{"in time": {3 * time.Second, 3 * time.Second, false}, "too late": {time.Hour, 5 * time.Second, true}} {
		f := &fake{put: func(s pb.FlightService_DoPutServer) error {
			for range 3 {
				if _, err := s.Recv(); err != nil {
					return err
				}
			}
			select {
			case <-time.After(tc.needs):
				return status.Error(codes.Internal, "Header-type of flatbuffer-encoded Message is not RecordBatch.")
			case <-s.Context().Done():
				return s.Context().Err()
			}
		}}
		inBubble(t, f, func(b *bubble) {
			ctx, stop := context.WithCancel(b.Context()) // of which the server is not told before
			time.AfterFunc(5*time.Second, stop)
			left, began := leftRows{errors.New("left")}, time.Now()
			rows := &brokenReader{RecordReader: emptyReader(b), batch: int64Batch(1), err: left}
			_, err := b.open().Ingest(ctx, rows, backend.IngestOptions{Table: "t"}, backend.Call{})
			require.ErrorIs(b, err, left, name)
			require.Equal(b, tc.running, failure(b, err).Running, name)
			require.Equal(b, tc.took, time.Since(began), name)
		})
	}
}

func emptyReader(t testing.TB) array.RecordReader {
	rows, err := array.NewRecordReader(int64Schema, nil)
	require.NoError(t, err)
	return rows
}

// brokenReader gives one batch and fails.
type brokenReader struct {
	array.RecordReader
	batch arrow.RecordBatch
	given bool
	err   error
}

func (r *brokenReader) Next() bool                     { given := r.given; r.given = true; return !given }
func (r *brokenReader) RecordBatch() arrow.RecordBatch { return r.batch }
func (r *brokenReader) Err() error                     { return r.err }

// TestAServerThatAnswersEachMessageIsHeard: it reads the next message when its
// answer has gone, and its answers are more than the stream's window.
func TestAServerThatAnswersEachMessageIsHeard(t *testing.T) {
	f := &fake{}
	last, answer := int64(0), func(n int64) *pb.PutResult {
		data, _ := proto.Marshal(&pb.DoPutUpdateResult{RecordCount: n})
		return &pb.PutResult{AppMetadata: data}
	}
	each := answer(0)
	f.put = func(s pb.FlightService_DoPutServer) error {
		for {
			data, err := s.Recv()
			if errors.Is(err, io.EOF) {
				return s.Send(answer(last))
			}
			if err != nil {
				return err
			}
			if len(data.GetDataBody()) > 0 {
				if err := s.Send(each); err != nil {
					return err
				}
			}
		}
	}
	const batches = 3000
	rows := func() array.RecordReader {
		batch := int64Batch(make([]int64, 100)...)
		all := make([]arrow.RecordBatch, batches)
		for i := range all {
			all[i] = batch
		}
		rdr, err := array.NewRecordReader(int64Schema, all)
		require.NoError(t, err)
		return rdr
	}
	for name, tc := range map[string]struct {
		each *pb.PutResult
		last int64
		want int64
	}{
		"one count at the end":   {&pb.PutResult{}, 300_000, 300_000},
		"a count for each":       {answer(100), 0, -1}, // whether they add up is not known
		"a count so far":         {answer(100), 300_000, -1},
		"no count":               {&pb.PutResult{}, 0, -1},
		"a long answer for each": {&pb.PutResult{AppMetadata: append([]byte{0x12, 200, 1}, make([]byte, 200)...)}, 300_000, -1},
	} {
		each, last = tc.each, tc.last
		inBubble(t, f, func(b *bubble) {
			ctx, stop := context.WithTimeout(b.Context(), time.Hour)
			defer stop()
			n, err := b.open().Ingest(ctx, rows(), backend.IngestOptions{Table: "t"}, backend.Call{})
			require.NoError(b, err, name)
			require.Equal(b, tc.want, n, name)
		})
	}
}

// TestAnIngestThatTheServerEndsEarlyHasFailed: rows that nobody read are lost,
// although the server says OK.
func TestAnIngestThatTheServerEndsEarlyHasFailed(t *testing.T) {
	for name, answers := range map[string][]*pb.PutResult{
		"without a count": nil,
		"with a count":    {{AppMetadata: marshal(&pb.DoPutUpdateResult{RecordCount: 10_000})}},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{put: func(s pb.FlightService_DoPutServer) error {
				for range 2 { // the schema and a batch
					if _, err := s.Recv(); err != nil {
						return err
					}
				}
				for _, answer := range answers {
					if err := s.Send(answer); err != nil {
						return err
					}
				}
				return nil
			}}
			inBubble(t, f, func(b *bubble) {
				batch := int64Batch(make([]int64, 10_000)...)
				defer batch.Release()
				rows, err := array.NewRecordReader(int64Schema, slices.Repeat([]arrow.RecordBatch{batch}, 50))
				require.NoError(b, err)
				defer rows.Release()
				_, err = b.open().Ingest(b.Context(), rows, backend.IngestOptions{Table: "t"}, backend.Call{})
				require.ErrorIs(b, err, errMalformed)
				require.False(b, failure(b, err).Unsent)
			})
		})
	}
}

// keptStream keeps what is sent, as tracing may.
type keptStream struct {
	grpc.ClientStream
	sent, copies *[][]byte
}

func (s keptStream) SendMsg(m any) error {
	if d, ok := m.(*pb.FlightData); ok {
		*s.sent, *s.copies = append(*s.sent, d.DataBody), append(*s.copies, bytes.Clone(d.DataBody))
	}
	return s.ClientStream.SendMsg(m)
}

// What is sent is the memory of the batch, but for what gRPC's own client may have shown to
// others.
func TestAnIngestIsSentFromTheMemoryOfItsBatch(t *testing.T) {
	f := &fake{}
	f.put = func(s pb.FlightService_DoPutServer) error {
		got, err := take(s)
		if err != nil {
			return err
		}
		return s.Send(counted(int64(len(got.rows))))
	}
	ingest := func(b *bubble) {
		batches := make([]arrow.RecordBatch, 5)
		for i := range batches {
			batches[i] = texts(strings.Repeat(string(rune('a'+i)), 1000))
		}
		rows, err := array.NewRecordReader(batches[0].Schema(), batches)
		require.NoError(b, err)
		n, err := b.open().Ingest(b.Context(), rows, backend.IngestOptions{Table: "t"}, backend.Call{})
		require.NoError(b, err)
		require.EqualValues(b, 5, n)
	}
	var sent, copies [][]byte
	inBubble(t, f, ingest, func(cfg *Config) {
		cfg.DialOptions = []grpc.DialOption{grpc.WithChainStreamInterceptor(
			func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				s, err := next(ctx, d, cc, method, opts...)
				return keptStream{s, &sent, &copies}, err
			})}
	})
	require.Len(t, sent, 6)
	require.Equal(t, copies, sent)

	batch := texts(strings.Repeat("x", 1000))
	e := newEncoder(describe(&pb.CommandGetCatalogs{}), batch.Schema(), 1<<20)
	defer e.close()
	messages, err := e.encode(batch)
	require.NoError(t, err)
	texts := batch.Column(0).(*array.String).ValueBytes()
	require.True(t, slices.ContainsFunc(messages[1].body, func(piece []byte) bool { return &piece[0] == &texts[0] }))
	for _, m := range messages {
		head, rest, err := marshalMessage(nil, m)
		require.NoError(t, err)
		sent := append(head, bytes.Join(rest, nil)...)
		require.Len(t, sent, m.size())
		require.Equal(t, marshal(m.flightData()), sent)
	}
	inBubble(t, f, ingest)
}
