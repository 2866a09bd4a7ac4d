package flightconn

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql/schema_ref"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A server that names every transaction the same ends one session's with
// another's.
func TestATransactionIDThatIsOpenInAnotherSessionIsRefused(t *testing.T) {
	for _, ignores := range []bool{false, true} {
		begins, ends := 0, 0
		f := &fake{action: func(a *pb.Action, s pb.FlightService_DoActionServer) error {
			switch a.GetType() {
			case "BeginTransaction":
				begins++
				return s.Send(&pb.Result{Body: pack(&pb.ActionBeginTransactionResult{TransactionId: []byte("the only one")})})
			case "EndTransaction":
				var req pb.ActionEndTransactionRequest
				if err := unpack(a.GetBody(), &req); err != nil {
					return err
				}
				if string(req.GetTransactionId()) != "the only one" && !ignores {
					return status.Error(codes.InvalidArgument, "unknown transaction")
				}
				ends++
				return nil
			}
			return status.Error(codes.Unimplemented, a.GetType())
		}}
		inBubble(t, f, func(b *bubble) {
			one, two := b.open(), b.open()
			tx, err := one.Begin(b.Context())
			require.NoError(b, err)
			ended := ends
			_, err = two.Begin(b.Context())
			require.Equal(b, backend.FaultSession, backend.FaultIn(err), "the connection is given up")
			require.ErrorContains(b, err, "two sessions at once")
			require.Equal(b, ended, ends, "the other session's is not ended")
			require.NoError(b, one.EndTx(b.Context(), tx, true))
			tx, err = two.Begin(b.Context())
			require.NoError(b, err, "it is free again")
			require.NoError(b, two.Close())
			_, err = one.Begin(b.Context())
			require.NoError(b, err, "a closed connection has none")
			_ = tx
		})
	}
}

// What the pool begins for itself must not stay open under later statements.
func TestATransactionByWhichIDsAreLearnedIsEndedOrTheSessionGivenUp(t *testing.T) {
	for name, begin := range map[string]func(b *bubble, c *Conn) error{
		"Begin":            func(b *bubble, c *Conn) error { _, err := c.Begin(b.Context()); return err },
		"RejectsUnknownTx": func(b *bubble, c *Conn) error { _, err := c.RejectsUnknownTx(b.Context()); return err },
	} {
		for _, failures := range []int{0, 1, 2, 3, 4} {
			ts := &txServer{ignores: true}
			ends := 0
			f := &fake{action: func(a *pb.Action, s pb.FlightService_DoActionServer) error {
				if a.GetType() == "EndTransaction" {
					if ends++; ends <= failures {
						return status.Error(codes.ResourceExhausted, "not now")
					}
				}
				return ts.action(a, s)
			}}
			inBubble(t, f, func(b *bubble) {
				err := begin(b, b.open())
				switch {
				case err == nil:
					require.Zero(b, failures, name)
				case failures == 1:
					require.Empty(b, ts.open, name)
					require.NotEqual(b, backend.FaultSession, backend.FaultIn(err), name)
				default:
					require.Equal(b, backend.FaultSession, backend.FaultIn(err), name)
					require.ErrorIs(b, err, backend.ErrSessionLost, name)
				}
			})
		}
	}
}

// Only a server that says so has transactions of one id apart from each other.
func TestSessionsMayShareAnIDWhereTheServerSaysThatItHasTransactions(t *testing.T) {
	const about = uint32(flightsql.SqlInfoFlightSqlServerTransaction)
	info := func(rows ...any) arrow.RecordBatch { // pairs of a number and a value
		build := array.NewRecordBuilder(memory.DefaultAllocator, schema_ref.SqlInfo)
		defer build.Release()
		values := build.Field(1).(*array.DenseUnionBuilder)
		for i := 0; i < len(rows); i += 2 {
			build.Field(0).(*array.Uint32Builder).Append(rows[i].(uint32))
			switch v := rows[i+1].(type) {
			case int32:
				values.Append(3)
				values.Child(3).(*array.Int32Builder).Append(v)
			case nil:
				values.Append(3)
				values.Child(3).(*array.Int32Builder).AppendNull()
			}
		}
		return build.NewRecordBatch()
	}
	for name, c := range map[string]struct {
		batch arrow.RecordBatch
		after error
		ok    bool
	}{
		"it has":                        {info(about, int32(1)), nil, true},
		"it has, among others":          {info(about-1, int32(0), about, int32(2), about+1, int32(0)), nil, true},
		"it has none":                   {info(about, int32(0)), nil, false},
		"another number is no answer":   {info(about-1, int32(1), about+1, int32(1)), nil, false},
		"no answer":                     {info(), nil, false},
		"NULL":                          {info(about, nil), nil, false},
		"an answer that is cut":         {info(about, int32(1)), status.Error(codes.Internal, "cut"), false},
		"columns of other types":        {texts("1"), nil, false},
		"a column less":                 {only32(about), nil, false},
		"a second column without types": {two32(about), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			defer c.batch.Release()
			asking := false
			f := &fake{}
			f.action = func(a *pb.Action, s pb.FlightService_DoActionServer) error {
				if a.GetType() == "BeginTransaction" {
					return s.Send(&pb.Result{Body: pack(&pb.ActionBeginTransactionResult{TransactionId: []byte("the only one")})})
				}
				return nil // every id is as good
			}
			f.info = func(_ context.Context, d *pb.FlightDescriptor) (*pb.FlightInfo, error) {
				if !asking {
					return nil, status.Error(codes.NotFound, "no information")
				}
				return answer(c.batch.Schema(), "0"), nil
			}
			f.get = func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error {
				w := flight.NewRecordWriter(s, ipc.WithSchema(c.batch.Schema()))
				return errors.Join(w.Write(c.batch), w.Close(), c.after)
			}
			inBubble(t, f, func(b *bubble) {
				one, two := b.open(), b.open()
				_, err := one.Begin(b.Context())
				require.NoError(b, err)
				repeats, err := one.RepeatsQueries(b.Context())
				require.NoError(b, err)
				require.True(b, repeats)
				asking = true
				_, err = two.Begin(b.Context())
				if c.ok {
					require.NoError(b, err)
				} else {
					require.Equal(b, backend.FaultSession, backend.FaultIn(err), "%v", err)
				}
			})
		})
	}
}

// Arrow's example in C++ for SQLite refuses ids of transactions that it does not know, and executes a query twice all the same.
func TestAServerOnSQLiteMayExecuteAQueryTwice(t *testing.T) {
	for version, want := range map[string]bool{"sqlite 3": true, "SQLite 3.50": true, "duckdb v1.5.5": false, "": false} {
		info := sqlInfoBatch(uint32(flightsql.SqlInfoFlightSqlServerVersion), version)
		asked := 0
		ts := &txServer{}
		f := &fake{action: ts.action}
		f.info = func(context.Context, *pb.FlightDescriptor) (*pb.FlightInfo, error) {
			return answer(info.Schema(), "0"), nil
		}
		f.get = func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error {
			asked++
			w := flight.NewRecordWriter(s, ipc.WithSchema(info.Schema()))
			return errors.Join(w.Write(info), w.Close())
		}
		inBubble(t, f, func(b *bubble) {
			for range 2 {
				repeats, err := b.open().RepeatsQueries(b.Context())
				require.NoError(b, err)
				require.Equal(b, want, repeats, version)
			}
			require.Equal(b, 1, asked, "once for the endpoint")
		})
		info.Release()
	}
}

// A failure that names no reason, of which the next may be another, does not tell that a server is not on SQLite: its changes with rows would
// be made twice.
func TestAServerThatFailsToTellItsVersionMayBeOnSQLite(t *testing.T) {
	for _, c := range []struct {
		failure error
		want    bool
	}{
		{status.Error(codes.Internal, "out of memory"), true},
		{status.Error(codes.Unknown, "boom"), true},
		{status.Error(codes.DeadlineExceeded, "the statement took too long"), true},
		{status.Error(codes.Canceled, "by an operator"), true},
		{status.Error(codes.Unimplemented, "GetSqlInfo"), false},
		{status.Error(codes.Internal, "GetSqlInfo is not implemented"), false},
		{status.Error(codes.NotFound, "no such SqlInfo"), false},
	} {
		ts, opened := &txServer{}, atomic.Bool{}
		f := &fake{action: ts.action}
		f.info = func(context.Context, *pb.FlightDescriptor) (*pb.FlightInfo, error) {
			if opened.Load() {
				return nil, c.failure
			}
			return nil, status.Error(codes.Unimplemented, "GetSqlInfo")
		}
		inBubble(t, f, func(b *bubble) {
			conn := b.open()
			opened.Store(true)
			repeats, err := conn.RepeatsQueries(b.Context())
			require.NoError(b, err)
			require.Equal(b, c.want, repeats, "%v", c.failure)
		})
	}
}

// sqlInfoBatch is SqlInfo's answer of one value, none where it is empty.
func sqlInfoBatch(code uint32, value string) arrow.RecordBatch {
	build := array.NewRecordBuilder(memory.DefaultAllocator, schema_ref.SqlInfo)
	defer build.Release()
	if value != "" {
		build.Field(0).(*array.Uint32Builder).Append(code)
		union := build.Field(1).(*array.DenseUnionBuilder)
		union.Append(0) // string_value
		union.Child(0).(*array.StringBuilder).Append(value)
	}
	return build.NewRecordBatch()
}

func only32(v uint32) arrow.RecordBatch {
	schema := arrow.NewSchema([]arrow.Field{{Name: "info_name", Type: arrow.PrimitiveTypes.Uint32}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	b.Field(0).(*array.Uint32Builder).Append(v)
	return b.NewRecordBatch()
}

func two32(v uint32) arrow.RecordBatch {
	number := arrow.PrimitiveTypes.Uint32
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "info_name", Type: number}, {Name: "value", Type: number}}, nil))
	defer b.Release()
	b.Field(0).(*array.Uint32Builder).Append(v)
	b.Field(1).(*array.Uint32Builder).Append(1)
	return b.NewRecordBatch()
}

// A transaction is known to be over when the server has confirmed its end, and not
// before: after a refusal a ROLLBACK of the same id follows, which would end what another
// session has begun under it.
func TestATransactionIsOpenUntilTheServerSaysThatItIsNot(t *testing.T) {
	for name, c := range map[string]struct {
		end  error
		open bool
	}{
		"committed": {nil, false},
		"refused":   {status.Error(codes.InvalidArgument, "no"), true},
		"unknown":   {status.Error(codes.Unavailable, "away"), true},
	} {
		t.Run(name, func(t *testing.T) {
			known := false
			f := &fake{action: func(a *pb.Action, s pb.FlightService_DoActionServer) error {
				switch {
				case a.GetType() == "BeginTransaction":
					return s.Send(&pb.Result{Body: pack(&pb.ActionBeginTransactionResult{TransactionId: []byte("the only one")})})
				case known:
					return c.end
				case strings.Contains(string(a.GetBody()), "the only one"):
					return nil
				default:
					return status.Error(codes.InvalidArgument, "unknown transaction")
				}
			}}
			inBubble(t, f, func(b *bubble) {
				one, two := b.open(), b.open()
				tx, err := one.Begin(b.Context())
				require.NoError(b, err)
				known = true
				err = one.EndTx(b.Context(), tx, true)
				require.Equal(b, c.end != nil, err != nil)
				_, err = two.Begin(b.Context())
				require.Equal(b, c.open, err != nil, "%v", err)
				c.end = nil
				require.NoError(b, one.EndTx(b.Context(), tx, false))
				_, err = b.open().Begin(b.Context())
				require.Equal(b, c.open, err == nil, "%v", err)
			})
		})
	}
}
