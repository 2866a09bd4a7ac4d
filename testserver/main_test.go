package testserver_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"

	"github.com/flightpool/flightpool/testserver/script"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/flightpool/flightpool/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble runs test in virtual time with a server in memory.
func bubble(t *testing.T, p testserver.Profile, test func(t *testing.T, srv *testserver.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, start(t, testserver.Options{Profile: p, Listen: testserver.InMemory}))
	})
}

func start(t *testing.T, opts testserver.Options) *testserver.Server {
	t.Helper()
	srv, err := testserver.Start(opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, srv.Close()) })
	return srv
}

// client is arrow-go's own client on one connection.
type client struct {
	*flightsql.Client
	t   *testing.T
	srv *testserver.Server
}

func dial(t *testing.T, srv *testserver.Server, opts ...grpc.DialOption) *client {
	t.Helper()
	opts = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(srv.Dial), grpc.WithIdleTimeout(0),
	}, opts...)
	cl, err := flightsql.NewClient("passthrough:///"+srv.Addr(), nil, nil, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = cl.Close() })
	return &client{Client: cl, t: t, srv: srv}
}

// fetch reads all batches of all endpoints over this connection.
func (c *client) fetch(ctx context.Context, info *flight.FlightInfo) ([]arrow.RecordBatch, error) {
	var all []arrow.RecordBatch
	for _, e := range info.GetEndpoint() {
		err := c.get(ctx, e.GetTicket(), func(b arrow.RecordBatch) {
			b.Retain()
			all = append(all, b)
		})
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

func (c *client) get(ctx context.Context, ticket *flight.Ticket, each func(arrow.RecordBatch)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rdr, err := c.DoGet(ctx, ticket)
	if err != nil {
		return err
	}
	defer rdr.Release()
	for rdr.Next() {
		each(rdr.RecordBatch())
	}
	return rdr.Err()
}

// query returns the rows as text, as in [["1" "x"]].
func (c *client) query(ctx context.Context, sql string) ([][]string, error) {
	info, err := c.Execute(ctx, sql)
	if err != nil {
		return nil, err
	}
	batches, err := c.fetch(ctx, info)
	return texts(batches), err
}

func texts(batches []arrow.RecordBatch) [][]string {
	rows := [][]string{}
	for _, b := range batches {
		for i := range int(b.NumRows()) {
			var row []string
			for _, col := range b.Columns() {
				row = append(row, col.ValueStr(i))
			}
			rows = append(rows, row)
		}
	}
	return rows
}

func (c *client) mustQuery(sql string) [][]string {
	c.t.Helper()
	rows, err := c.query(c.t.Context(), sql)
	require.NoError(c.t, err)
	return rows
}

// update runs on a context of its own, as arrow-go keeps a goroutine until
// the context of an update ends.
func (c *client) update(sql string) (int64, error) {
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	return c.ExecuteUpdate(ctx, sql)
}

func (c *client) mustUpdate(sql string) int64 {
	c.t.Helper()
	n, err := c.update(sql)
	require.NoError(c.t, err)
	return n
}

func (c *client) updateIn(tx *flightsql.Txn, sql string) (int64, error) {
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	return tx.ExecuteUpdate(ctx, sql)
}

func requireCode(t *testing.T, want codes.Code, err error) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, want.String(), status.Code(err).String(), "%v", err)
}

// batch is one batch with one column of numbers.
func batch(t *testing.T, name string, values ...int64) arrow.RecordBatch {
	t.Helper()
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: name, Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil))
	defer b.Release()
	b.Field(0).(*array.Int64Builder).AppendValues(values, nil)
	return b.NewRecordBatch()
}

// swanWith is bubble with SwanLake on a database that the test can extend.
func swanWith(t *testing.T, db *script.Engine, test func(t *testing.T, srv *testserver.Server, db *script.Engine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, start(t, testserver.Options{Profile: testserver.SwanLake(), Engine: db, Listen: testserver.InMemory}), db)
	})
}

// statementTicket is the ticket of a statement's handle.
func statementTicket(t *testing.T, handle string) []byte {
	t.Helper()
	packed, err := anypb.New(&pb.TicketStatementQuery{StatementHandle: []byte(handle)})
	require.NoError(t, err)
	raw, err := proto.Marshal(packed)
	require.NoError(t, err)
	return raw
}

// endTx ends a transaction by its id alone.
func endTx(t *testing.T, c *client, id string, commit bool) error {
	t.Helper()
	end := &pb.ActionEndTransactionRequest{TransactionId: []byte(id), Action: flightsql.EndTransactionRollback}
	if commit {
		end.Action = flightsql.EndTransactionCommit
	}
	packed, err := anypb.New(end)
	require.NoError(t, err)
	body, err := proto.Marshal(packed)
	require.NoError(t, err)
	_, err = c.action("EndTransaction", body)
	return err
}

// action runs one action and returns the body of its result.
func (c *client) action(name string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	stream, err := c.Client.Client.DoAction(ctx, &flight.Action{Type: name, Body: body})
	if err != nil {
		return nil, err
	}
	result, err := stream.Recv()
	return result.GetBody(), err
}

func reader(t *testing.T, batches ...arrow.RecordBatch) array.RecordReader {
	t.Helper()
	r, err := array.NewRecordReader(batches[0].Schema(), batches)
	require.NoError(t, err)
	return r
}

// updateAs runs sql in a transaction by its id alone.
func updateAs(t *testing.T, c *client, tx, sql string) error {
	t.Helper()
	packed, err := anypb.New(&pb.CommandStatementUpdate{Query: sql, TransactionId: []byte(tx)})
	require.NoError(t, err)
	cmd, err := proto.Marshal(packed)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := c.Client.Client.DoPut(ctx)
	require.NoError(t, err)
	w := flight.NewRecordWriter(stream, ipc.WithSchema(arrow.NewSchema(nil, nil)))
	w.SetFlightDescriptor(&flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: cmd})
	require.NoError(t, w.Close())
	require.NoError(t, stream.CloseSend())
	_, err = stream.Recv()
	return err
}
