package adbcconn

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/flightconn"
	"github.com/flightpool/flightpool/testserver"
)

// inBubble runs test in virtual time, against a server with a profile, with a
// connection of our driver.
func inBubble(t *testing.T, p testserver.Profile, test func(t *testing.T, s server, c backend.Conn), change ...func(*flightconn.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, p)
		cfg := flightconn.Config{Address: s.Addr(), Dialer: s.Dial}
		for _, f := range change {
			f(&cfg)
		}
		c, err := newOurs(t, cfg).open(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		test(t, s, c)
	})
}

// ints reads the first column of a result to its end.
func ints(t testing.TB, s backend.Stream) ([]int64, error) {
	t.Helper()
	defer s.Close()
	var out []int64
	for {
		batch, err := s.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, batch.Column(0).(*array.Int64).Int64Values()...)
	}
}

func count(t testing.TB, c backend.Conn, sql string) int {
	t.Helper()
	s, err := c.Query(t.Context(), sql, backend.Call{})
	require.NoError(t, err)
	got, err := ints(t, s)
	require.NoError(t, err)
	return len(got)
}

func failure(t testing.TB, err error) *backend.Error {
	t.Helper()
	var e *backend.Error
	require.ErrorAs(t, err, &e)
	return e
}

func int64s(values ...int64) arrow.RecordBatch {
	schema := arrow.NewSchema([]arrow.Field{{Name: "v", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).AppendValues(values, nil)
	return b.NewRecordBatch()
}

// The driver would open a connection to a server that is not there.
func TestOpenOfADeadServerFailsUnsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, testserver.Strict())
		o, foreign := s.ours(t), s.foreign(t)
		require.NoError(t, s.Close())
		_, err := o.open(t.Context())
		e := failure(t, err)
		require.Equal(t, backend.FaultTransport, e.Fault)
		require.Equal(t, backend.StageDial, e.Stage)
		require.True(t, e.Unsent)

		_, err = foreign(t.Context())
		e = failure(t, err)
		require.Equal(t, backend.FaultTransport, e.Fault)
		require.Equal(t, backend.StageDial, e.Stage, "the driver dials with the probe")
		require.Equal(t, codes.Unavailable, status.Code(err))
	})
}

// The driver would be left with a transaction that is none.
func TestAFailedCommitLeavesTheConnectionUsable(t *testing.T) {
	inBubble(t, testserver.Strict(), func(t *testing.T, s server, c backend.Conn) {
		_, err := c.Update(t.Context(), "CREATE TABLE t (v BIGINT)", backend.Call{})
		require.NoError(t, err)
		for range 2 {
			tx, err := c.Begin(t.Context())
			require.NoError(t, err)
			fault := s.Faults().Set(testserver.Fault{On: testserver.OnEnd, Times: 1, Do: testserver.Fail(codes.Aborted, "conflict")})
			_, err = c.Update(t.Context(), "INSERT INTO t VALUES (1)", backend.Call{Tx: tx})
			require.NoError(t, err)
			err = c.EndTx(t.Context(), tx, true)
			require.Equal(t, backend.FaultStatement, failure(t, err).Fault)
			require.Equal(t, 1, fault.Fired())
			require.NoError(t, c.EndTx(t.Context(), tx, false), "it can still be rolled back")
		}
		require.Equal(t, 3, count(t, c, "SELECT * FROM generate(3)"))
		require.NoError(t, c.Lost())
	})
}

// The driver would crash the process: it closes a channel that it has not made.
func TestSeveralEndpointsWithoutASchemaAreRead(t *testing.T) {
	p := testserver.Strict()
	p.NoSchema, p.Endpoints = true, 3
	inBubble(t, p, func(t *testing.T, s server, c backend.Conn) {
		for _, n := range []int{0, 1, 5000} {
			rows, err := c.Query(t.Context(), scripted.Rows(n), backend.Call{})
			require.NoError(t, err)
			got, err := ints(t, rows)
			require.NoError(t, err)
			require.Len(t, got, n)
			for i, v := range got {
				require.EqualValues(t, i, v, "in the server's order")
			}
		}
	})
}

// The driver would compare the schema with that of the FlightInfo and fail.
func TestTheStreamsSchemaOverrulesAStaleFlightInfo(t *testing.T) {
	inBubble(t, testserver.Strict(), func(t *testing.T, s server, c backend.Conn) {
		stale := flight.SerializeSchema(arrow.NewSchema([]arrow.Field{{Name: "old", Type: arrow.BinaryTypes.String}}, nil), memory.DefaultAllocator)
		s.Faults().Set(testserver.Fault{On: testserver.OnGetFlightInfo, After: true, Do: testserver.Rewrite(func(i *flight.FlightInfo) { i.Schema = stale })})
		require.Equal(t, 10, count(t, c, "SELECT * FROM generate(10)"))
	})
}

// The driver would close the client of a location five minutes after its
// first use, with the streams on it.
func TestAStreamFromALocationOutlivesFiveMinutes(t *testing.T) {
	p := testserver.Strict()
	p.RoamingTickets = true // redeemed over another connection
	inBubble(t, p, func(t *testing.T, s server, c backend.Conn) {
		s.Faults().Set(testserver.Fault{On: testserver.OnGetFlightInfo, After: true, Do: testserver.Rewrite(func(i *flight.FlightInfo) {
			for _, e := range i.Endpoint {
				e.Location = []*flight.Location{{Uri: "grpc+tcp://elsewhere:1"}}
			}
		})})
		other, err := s.ours(t).open(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, other.Close()) }()

		const rows = 1_000_000 // more than all buffers on the way hold
		slow, err := c.Query(t.Context(), scripted.Rows(rows), backend.Call{})
		require.NoError(t, err)
		first, err := slow.Next()
		require.NoError(t, err)
		have := int(first.NumRows())
		time.Sleep(6 * time.Minute)
		require.Equal(t, 10, count(t, other, scripted.Rows(10)))
		rest, err := ints(t, slow)
		require.NoError(t, err)
		require.Equal(t, rows, have+len(rest))
		require.GreaterOrEqual(t, s.Ledger().Snapshot().ConnsOpened, 3, "the rows came from the location")
	})
}

// The driver's Close would wait for ever.
func TestCloseIsBoundedWhenTheServerIsSilent(t *testing.T) {
	inBubble(t, testserver.Strict(), func(t *testing.T, s server, c backend.Conn) {
		hang := s.Faults().Set(testserver.Fault{On: testserver.OnCloseSession, Do: testserver.Hang()})
		began := time.Now()
		err := c.Close()
		require.Equal(t, flightconn.DefaultCloseTimeout, time.Since(began))
		require.Equal(t, backend.StageClose, failure(t, err).Stage)
		hang.Clear()
	})
}

// The driver would be entered after its Close, and crash.
func TestCloseUnderARunningCallLetsItOutOfTheDriverFirst(t *testing.T) {
	inBubble(t, testserver.Strict(), func(t *testing.T, s server, c backend.Conn) {
		rows, err := c.Query(t.Context(), scripted.Rows(1_000_000), backend.Call{})
		require.NoError(t, err)
		_, err = rows.Next()
		require.NoError(t, err)
		require.NoError(t, c.Close())
		_, known := c.(*Conn).driver.conns.Load(c.(*Conn).cc)
		require.True(t, known, "the result still holds the driver's connection")
		_, err = ints(t, rows)
		require.ErrorIs(t, err, backend.ErrSessionLost)
		_, known = c.(*Conn).driver.conns.Load(c.(*Conn).cc)
		require.False(t, known, "and the end of the result has let go of it")
	})
}

// The driver's default logger writes JSON there.
func TestNothingIsWrittenToStderr(t *testing.T) {
	read, write, err := os.Pipe()
	require.NoError(t, err)
	stderr := os.Stderr
	os.Stderr = write
	defer func() { os.Stderr = stderr }()
	addr, _ := startSQLite(t)
	c, err := newOurs(t, flightconn.Config{Address: addr}).open(t.Context())
	require.NoError(t, err)
	s, err := c.Query(t.Context(), sqlite.Invalid, backend.Call{})
	for err == nil {
		_, err = s.Next()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	s, err = c.Query(ctx, sqlite.Slow, backend.Call{})
	for err == nil {
		_, err = s.Next()
	}
	require.NoError(t, c.Close())
	os.Stderr = stderr
	require.NoError(t, write.Close())
	text, err := io.ReadAll(read)
	require.NoError(t, err)
	require.Empty(t, string(text))
}

// The driver would lose what the codes say, and the way to the status.
func TestErrorsAreThoseOfTheServer(t *testing.T) {
	for code, want := range map[codes.Code]backend.Fault{
		codes.ResourceExhausted:  backend.FaultLimit,
		codes.FailedPrecondition: backend.FaultStatement,
		codes.Aborted:            backend.FaultStatement,
		codes.Internal:           backend.FaultStatement,
		codes.Unimplemented:      backend.FaultUnsupported,
		codes.Unauthenticated:    backend.FaultAuth,
		codes.NotFound:           backend.FaultStatement,
	} {
		for name, open := range map[string]func(t *testing.T, s server) func(context.Context) (backend.Conn, error){
			"ours":    func(t *testing.T, s server) func(context.Context) (backend.Conn, error) { return s.ours(t).open },
			"foreign": func(t *testing.T, s server) func(context.Context) (backend.Conn, error) { return s.foreign(t) },
		} {
			t.Run(name+" "+code.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := startServer(t, testserver.Strict())
					c, err := open(t, s)(t.Context())
					require.NoError(t, err)
					defer func() { _ = c.Close() }()
					for _, on := range []testserver.Point{testserver.OnGetFlightInfo, testserver.OnDoGet, testserver.OnDoPut} {
						fault := s.Faults().Set(testserver.Fault{On: on, SQL: "generate(7)", Do: testserver.Fail(code, "said the server [57014]")})
						if on == testserver.OnDoPut {
							_, err = c.Update(t.Context(), scripted.Rows(7), backend.Call{})
						} else {
							var rows backend.Stream
							if rows, err = c.Query(t.Context(), scripted.Rows(7), backend.Call{}); err == nil {
								_, err = ints(t, rows)
							}
						}
						e := failure(t, err)
						require.Equal(t, want, e.Fault, "%s: %v", on, err)
						require.ErrorContains(t, err, "said the server")
						require.Equal(t, code, status.Code(err), "the chain reaches the status")
						var byValue adbc.Error
						require.ErrorAs(t, err, &byValue)
						require.EqualValues(t, code, byValue.VendorCode)
						var byPointer *adbc.Error
						require.ErrorAs(t, err, &byPointer)
						fault.Clear()
					}
				})
			})
		}
	}
}

// The driver would tell a deadline in the middle of a stream by a code of its
// own, without the server's.
func TestADeadlineInTheMiddleOfAStreamIsTheCallers(t *testing.T) {
	for name, open := range map[string]func(t *testing.T, s server) func(context.Context) (backend.Conn, error){
		"ours":    func(t *testing.T, s server) func(context.Context) (backend.Conn, error) { return s.ours(t).open },
		"foreign": func(t *testing.T, s server) func(context.Context) (backend.Conn, error) { return s.foreign(t) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startServer(t, testserver.Strict())
				c, err := open(t, s)(t.Context())
				require.NoError(t, err)
				defer func() { _ = c.Close() }()
				s.Faults().Set(testserver.Fault{On: testserver.OnBatch, Skip: 2, Do: testserver.Hang()})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				began := time.Now()
				rows, err := c.Query(ctx, scripted.Rows(10_000), backend.Call{})
				require.NoError(t, err)
				_, err = ints(t, rows)
				require.LessOrEqual(t, time.Since(began), time.Second+50*time.Millisecond)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, backend.FaultContext, failure(t, err).Fault)
				var driver adbc.Error
				require.ErrorAs(t, err, &driver)
				s.Faults().Clear()
			})
		})
	}
}

// The driver would send a batch in one message, whatever its size.
func TestParametersAndRowsAreSplitByTheMessageLimit(t *testing.T) {
	inBubble(t, testserver.Strict(), func(t *testing.T, s server, c backend.Conn) {
		_, err := c.Update(t.Context(), "CREATE TABLE t (v BIGINT)", backend.Call{})
		require.NoError(t, err)
		values := make([]int64, 3000)
		batch := int64s(values...)
		defer batch.Release()

		p, err := c.Prepare(t.Context(), "INSERT INTO t VALUES (?)", backend.Call{})
		require.NoError(t, err)
		n, err := p.Update(t.Context(), batch, backend.Call{})
		require.NoError(t, err)
		require.EqualValues(t, len(values), n)
		require.NoError(t, p.Close(t.Context()))

		rows, err := array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch})
		require.NoError(t, err)
		defer rows.Release()
		n, err = c.Ingest(t.Context(), rows, backend.IngestOptions{Table: "t", Mode: backend.IngestAppend}, backend.Call{})
		require.NoError(t, err)
		require.EqualValues(t, len(values), n)
	}, func(cfg *flightconn.Config) { cfg.RequestLimit = 8 << 10 })
}

func TestARowAboveTheMessageLimitIsTheCallersFault(t *testing.T) {
	inBubble(t, testserver.Strict(), func(t *testing.T, s server, c backend.Conn) {
		schema := arrow.NewSchema([]arrow.Field{{Name: "v", Type: arrow.BinaryTypes.String}}, nil)
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		defer b.Release()
		b.Field(0).(*array.StringBuilder).Append(string(make([]byte, 10<<10)))
		batch := b.NewRecordBatch()
		defer batch.Release()

		p, err := c.Prepare(t.Context(), "SELECT ?", backend.Call{})
		require.NoError(t, err)
		_, err = p.Query(t.Context(), batch, backend.Call{})
		e := failure(t, err)
		require.Equal(t, backend.FaultUsage, e.Fault)
		require.True(t, e.Unsent)
		require.NoError(t, p.Close(t.Context()))

		rows, err := array.NewRecordReader(schema, []arrow.RecordBatch{batch})
		require.NoError(t, err)
		defer rows.Release()
		_, err = c.Ingest(t.Context(), rows, backend.IngestOptions{Table: "t"}, backend.Call{})
		require.Equal(t, backend.FaultUsage, failure(t, err).Fault)
		require.Equal(t, 3, count(t, c, scripted.Rows(3)))

		b.Field(0).(*array.StringBuilder).Append("short")
		short := b.NewRecordBatch()
		defer short.Release()
		rows, err = array.NewRecordReader(schema, []arrow.RecordBatch{short, batch})
		require.NoError(t, err)
		defer rows.Release()
		_, err = c.Ingest(t.Context(), rows, backend.IngestOptions{Table: "t"}, backend.Call{})
		e = failure(t, err)
		require.Equal(t, backend.FaultUnknown, e.Fault, "a row was sent, so the transaction is not as it was")
		require.False(t, e.Running, "the server has refused what it was sent")
	}, func(cfg *flightconn.Config) { cfg.RequestLimit = 8 << 10 })
}

// The driver would crash the process here as well.
func TestSeveralEndpointsAndNoSchemaAnywhereAreAnError(t *testing.T) {
	p := testserver.Strict()
	p.NoSchema, p.Endpoints = true, 3
	inBubble(t, p, func(t *testing.T, s server, c backend.Conn) {
		s.Faults().Set(testserver.Fault{On: testserver.OnDoGet, After: true, Do: testserver.Rewrite(func(d *flight.FlightData) { d.DataHeader = nil })})
		_, err := c.Query(t.Context(), scripted.Rows(0), backend.Call{})
		require.ErrorContains(t, err, "no schema")
		s.Faults().Clear()
	})
}

func TestRepliesThatBreakTheProtocolAreErrors(t *testing.T) {
	for name, effect := range map[string]testserver.Effect{
		"no endpoints and no schema": testserver.Effects(testserver.NoEndpoints, testserver.NoSchema),
		"bad schema":                 testserver.Effects(testserver.NoEndpoints, testserver.BadSchema),
		"nil tickets":                testserver.NilTickets,
		"nil endpoints":              testserver.NilEndpoints,
		"bad tickets":                testserver.BadTickets,
	} {
		for _, endpoints := range []int{1, 3} {
			p := testserver.Strict()
			p.Endpoints = endpoints
			t.Run(name, func(t *testing.T) {
				inBubble(t, p, func(t *testing.T, s server, c backend.Conn) {
					s.Faults().Set(testserver.Fault{On: testserver.OnGetFlightInfo, After: true, Do: effect})
					rows, err := c.Query(t.Context(), scripted.Rows(10), backend.Call{})
					if err == nil {
						_, err = ints(t, rows)
					}
					require.NotNil(t, failure(t, err))
					s.Faults().Clear()
				})
			})
		}
	}
}

func TestGarbageInAStreamIsAnError(t *testing.T) {
	for name, corrupt := range map[string]func(*flight.FlightData){
		"header": func(d *flight.FlightData) { d.DataHeader = []byte("not a flatbuffer at all, is it?") },
		"short":  func(d *flight.FlightData) { d.DataHeader = d.DataHeader[:7] },
		"body":   func(d *flight.FlightData) { d.DataBody = d.DataBody[:len(d.DataBody)/2] },
	} {
		for point, on := range map[string]testserver.Point{"schema": testserver.OnDoGet, "batch": testserver.OnBatch} {
			if name == "body" && point == "schema" {
				continue // a schema has none
			}
			t.Run(name+" of a "+point, func(t *testing.T) {
				inBubble(t, testserver.Strict(), func(t *testing.T, s server, c backend.Conn) {
					s.Faults().Set(testserver.Fault{On: on, After: on == testserver.OnDoGet, Do: testserver.Rewrite(corrupt)})
					rows, err := c.Query(t.Context(), scripted.Rows(10), backend.Call{})
					if err == nil {
						_, err = ints(t, rows)
					}
					require.NotNil(t, failure(t, err))
					s.Faults().Clear()
				})
			})
		}
	}
}
