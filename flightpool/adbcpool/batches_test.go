package adbcpool

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/memnet"
	"github.com/flightpool/flightpool/internal/tools/valuegen"
	"github.com/flightpool/flightpool/rowscan"
)

// batchServer answers "SELECT n" by the batches of result n, as several endpoints or one.
type batchServer struct {
	pb.UnimplementedFlightServiceServer
	results []sentResult
}

type sentResult struct {
	schema    *arrow.Schema
	endpoints [][]arrow.RecordBatch
	opts      []ipc.Option
}

func (b *batchServer) GetFlightInfo(_ context.Context, d *pb.FlightDescriptor) (*pb.FlightInfo, error) {
	var packed anypb.Any
	var query pb.CommandStatementQuery
	if proto.Unmarshal(d.GetCmd(), &packed) != nil || packed.UnmarshalTo(&query) != nil {
		return nil, status.Error(codes.Unimplemented, "queries only")
	}
	n, err := strconv.Atoi(strings.TrimPrefix(query.GetQuery(), "SELECT "))
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, "no such result")
	}
	info := &pb.FlightInfo{Schema: flight.SerializeSchema(b.results[n].schema, memory.DefaultAllocator), TotalRecords: -1, TotalBytes: -1}
	for i := range b.results[n].endpoints {
		info.Endpoint = append(info.Endpoint, &pb.FlightEndpoint{Ticket: &pb.Ticket{Ticket: fmt.Appendf(nil, "%d %d", n, i)}})
	}
	return info, nil
}

func (b *batchServer) DoGet(k *pb.Ticket, s pb.FlightService_DoGetServer) error {
	var n, i int
	if _, err := fmt.Sscan(string(k.GetTicket()), &n, &i); err != nil {
		return err
	}
	w := flight.NewRecordWriter(s, append([]ipc.Option{ipc.WithSchema(b.results[n].schema)}, b.results[n].opts...)...)
	for _, batch := range b.results[n].endpoints[i] {
		if err := w.Write(batch); err != nil {
			return err
		}
	}
	return w.Close()
}

// grownColumn is a column of each of the batches, whose dictionary grows, is replaced or stays.
func grownColumn(r *rand.Rand, sizes []int) []arrow.Array {
	mem := memory.DefaultAllocator
	kind := r.IntN(4)
	words := []string{"a", "b"}
	var columns []arrow.Array
	for n, rows := range sizes {
		switch r.IntN(3) {
		case 0:
			words = append(words[:len(words):len(words)], fmt.Sprintf("more-%d", n))
		case 1:
			words = []string{fmt.Sprintf("other-%d", n), "x", "y"}
		}
		leaf := func(n int) arrow.Array {
			dictionary, indices := array.NewStringBuilder(mem), array.NewInt16Builder(mem)
			dictionary.AppendValues(words, nil)
			for range n {
				if r.IntN(5) == 0 {
					indices.AppendNull()
				} else {
					indices.Append(int16(r.IntN(len(words))))
				}
			}
			return array.NewDictionaryArray(&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int16, ValueType: arrow.BinaryTypes.String}, indices.NewArray(), dictionary.NewArray())
		}
		switch kind {
		case 0:
			columns = append(columns, leaf(rows))
		case 1:
			s, err := array.NewStructArray([]arrow.Array{leaf(rows), leaf(rows)}, []string{"a", "b"})
			if err != nil {
				panic(err)
			}
			columns = append(columns, s)
		default: // a dictionary of structs with dictionaries
			s, err := array.NewStructArray([]arrow.Array{leaf(len(words))}, []string{"s"})
			if err != nil {
				panic(err)
			}
			indices := array.NewInt32Builder(mem)
			for range rows {
				indices.Append(int32(r.IntN(len(words))))
			}
			columns = append(columns, array.NewDictionaryArray(&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: s.DataType()}, indices.NewArray(), s))
		}
	}
	return columns
}

// randomResult has batches of any size, of no rows and of no columns among them. wants are its values in their order.
func randomResult(seed uint64) (result sentResult, wants []string) {
	r := rand.New(rand.NewPCG(seed, 2))
	g := valuegen.New(seed)
	sizes := make([]int, r.IntN(7))
	total := 0
	for i := range sizes {
		sizes[i] = r.IntN(4)
		total += sizes[i]
	}
	columns := make([][]arrow.Array, len(sizes)) // by batch
	var fields []arrow.Field
	for c := range r.IntN(4) {
		var parts []arrow.Array
		if r.IntN(2) == 0 && len(sizes) > 0 {
			parts = grownColumn(r, sizes)
		}
		for parts == nil {
			whole, of := g.Exactly(total, 2)
			if t := arrow.NewSchema([]arrow.Field{{Type: whole.DataType()}}, nil).String(); strings.Contains(t, "uuid") || strings.Contains(t, "flightpool.") {
				continue // extensions arrive as their storage
			}
			at := 0
			for _, n := range sizes {
				part := array.NewSlice(whole, int64(at), int64(at+n))
				if !carried(part, of[at:at+n]) {
					parts = nil
					break
				}
				parts, at = append(parts, part), at+n
			}
			if len(sizes) == 0 {
				parts = []arrow.Array{whole}
			}
		}
		fields = append(fields, arrow.Field{Name: fmt.Sprint("c", c), Type: parts[0].DataType(), Nullable: true, Metadata: arrow.MetadataFrom(map[string]string{"k": "v"})})
		for i := range sizes {
			columns[i] = append(columns[i], parts[i])
		}
	}
	metadata := arrow.MetadataFrom(map[string]string{"of": "result"})
	result.schema = arrow.NewSchema(fields, &metadata)
	result.opts = [][]ipc.Option{nil, {ipc.WithLZ4()}, {ipc.WithZstd()}}[r.IntN(3)]
	if r.IntN(2) == 0 {
		result.opts = append(result.opts, ipc.WithDictionaryDeltas(true))
	}
	result.endpoints = make([][]arrow.RecordBatch, 1+r.IntN(3))
	for i, n := range sizes {
		batch := array.NewRecordBatch(result.schema, columns[i], int64(n))
		at := i * len(result.endpoints) / len(sizes)
		result.endpoints[at] = append(result.endpoints[at], batch)
		wants = append(wants, valuesOf(batch)...)
	}
	return result, wants
}

func valuesOf(batch arrow.RecordBatch) (all []string) {
	for row := range int(batch.NumRows()) {
		line := "row"
		for _, c := range batch.Columns() {
			line += fmt.Sprintf(" | %v", rowscan.Value(c, row))
		}
		all = append(all, line)
	}
	return all
}

// pool makes a pool of the server.
func (b *batchServer) pool(t *testing.T, kind string) *flightpool.FlightSQLPool {
	l := memnet.New("server:1")
	s := grpc.NewServer(grpc.WaitForHandlers(true))
	pb.RegisterFlightServiceServer(s, b)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); _ = l.Close() })
	dial := func(ctx context.Context, addr string) (net.Conn, error) { return l.Dial(ctx, addr) }
	cfg := flightpool.Config{MaxSize: 1, DisableRetry: true, HealthCheck: flightpool.HealthCheck{SQL: "SELECT 0"}}
	open := flightpool.New
	switch kind {
	case "new":
		db, err := driverAt("127.0.0.1:1", grpc.WithContextDialer(dial))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		open = func(ctx context.Context, _ string, cfg flightpool.Config) (*flightpool.FlightSQLPool, error) {
			return New(ctx, db, cfg)
		}
	case "open":
		open, cfg.Dialer = Open, dial
	default:
		cfg.Dialer = dial
	}
	pool, err := open(t.Context(), "grpc://server:1", cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close(context.WithoutCancel(t.Context()))) })
	return pool
}

// TestBatchesAreWhatWasSentOnEveryBackend reads each result twice: batch by batch, and once more when the
// result is gone, of batches that were retained. What ADBC's driver would change in them is refused there.
func TestBatchesAreWhatWasSentOnEveryBackend(t *testing.T) {
	const results = 60
	server := &batchServer{}
	var wants [][]string
	for seed := range uint64(results) {
		result, want := randomResult(seed)
		server.results, wants = append(server.results, result), append(wants, want)
	}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pool := server.pool(t, kind)
				for i, want := range wants {
					result, err := pool.Query(t.Context(), fmt.Sprint("SELECT ", i))
					if kind != "native" && strings.Contains(server.results[i].schema.String(), "dictionary<values=struct<s: dictionary") {
						require.ErrorContains(t, err, "whose values have dictionaries")
						continue
					}
					require.NoError(t, err)
					var got, again []string
					var kept []arrow.RecordBatch
					for result.Next() {
						batch := result.RecordBatch()
						require.Equal(t, server.results[i].schema.String(), batch.Schema().String())
						batch.Retain()
						kept = append(kept, batch)
						got = append(got, valuesOf(batch)...)
					}
					require.NoError(t, result.Err())
					require.Equal(t, server.results[i].schema.String(), result.Schema().String())
					result.Release()
					for _, batch := range kept {
						again = append(again, valuesOf(batch)...)
						batch.Release()
					}
					require.Equal(t, want, got, "result %d", i)
					require.Equal(t, want, again, "result %d, kept", i)
				}
			})
		})
	}
}
