package flightpool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/testserver"
)

// midwayCalls change several things by one call, which the server sees at some points.
var midwayCalls = map[string]struct {
	sql  string
	at   []testserver.Point
	call func(ctx context.Context, q midwayCaller) error
}{
	"text": {"INSERT", []testserver.Point{testserver.OnDoPut}, func(ctx context.Context, q midwayCaller) error {
		_, err := q.Update(ctx, "INSERT INTO memory.t VALUES (1); INSERT INTO memory.t VALUES (2)")
		return err
	}},
	"text that some servers cut": {"INSERT", []testserver.Point{testserver.OnDoPut}, func(ctx context.Context, q midwayCaller) error {
		_, err := q.Update(ctx, `INSERT INTO memory.t VALUES (length('\'')); INSERT INTO memory.t VALUES (2) --'))`)
		return err
	}},
	"text as a query": {"INSERT", []testserver.Point{testserver.OnGetFlightInfo}, func(ctx context.Context, q midwayCaller) error {
		return drained(q.QueryWithOptions(ctx, "INSERT INTO memory.t VALUES (1); SELECT 7", QueryOptions{Route: RouteQuery}))
	}},
	"text with progress": {"INSERT", []testserver.Point{"PollFlightInfo", testserver.OnGetFlightInfo}, func(ctx context.Context, q midwayCaller) error {
		return drained(q.QueryWithOptions(ctx, "INSERT INTO memory.t VALUES (1); SELECT 7", QueryOptions{Route: RouteQuery, Progress: func(float64, bool) {}}))
	}},
	"rows": {"INSERT", []testserver.Point{testserver.OnStatement}, func(ctx context.Context, q midwayCaller) error {
		rows := ints("k", 1, 2, 3)
		defer rows.Release()
		_, err := q.UpdateWithOptions(ctx, "INSERT INTO memory.t VALUES (?)", QueryOptions{Params: rows})
		return err
	}},
	"ingest of one batch in parts": {"INGEST", []testserver.Point{testserver.OnStatement}, func(ctx context.Context, q midwayCaller) error {
		rows := texts(2, 2<<20) // which do not fit into one message
		defer rows.Release()
		reader, err := array.NewRecordReader(rows.Schema(), []arrow.RecordBatch{rows})
		if err != nil {
			return err
		}
		defer reader.Release()
		_, err = q.Ingest(ctx, "u", reader, IngestOptions{Catalog: "memory", Schema: "main"})
		return err
	}},
	"ingest in place of a table": {"INGEST", []testserver.Point{testserver.OnStatement}, func(ctx context.Context, q midwayCaller) error {
		rows := ints("k", 1, 2)
		defer rows.Release()
		reader, err := array.NewRecordReader(rows.Schema(), []arrow.RecordBatch{rows})
		if err != nil {
			return err
		}
		defer reader.Release()
		_, err = q.Ingest(ctx, "t", reader, IngestOptions{Catalog: "memory", Schema: "main", Mode: IngestReplace})
		return err
	}},
	"ingest": {"INGEST", []testserver.Point{testserver.OnStatement}, func(ctx context.Context, q midwayCaller) error {
		rows := ints("k", 1, 2)
		defer rows.Release()
		reader, err := array.NewRecordReader(rows.Schema(), []arrow.RecordBatch{rows, rows})
		if err != nil {
			return err
		}
		defer reader.Release()
		_, err = q.Ingest(ctx, "t", reader, IngestOptions{Catalog: "memory", Schema: "main"})
		return err
	}},
}

type midwayCaller interface {
	Update(ctx context.Context, sql string, args ...any) (UpdateResult, error)
	QueryWithOptions(ctx context.Context, sql string, opts QueryOptions) (*QueryResult, error)
	UpdateWithOptions(ctx context.Context, sql string, opts QueryOptions) (UpdateResult, error)
	Ingest(ctx context.Context, table string, rows array.RecordReader, opts IngestOptions) (int64, error)
}

// midwayAnswers are what a server, or a proxy before it, says in the middle.
var midwayAnswers = func() map[string]testserver.Effect {
	out := map[string]testserver.Effect{"kill": testserver.Kill(), "page 404": testserver.Fail(codes.Unimplemented, "unexpected HTTP status code received from server: 404 (Not Found)"),
		"page 401": testserver.Fail(codes.Unauthenticated, "unexpected HTTP status code received from server: 401 (Unauthorized)")}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		out[code.String()] = testserver.Fail(code, "refused: not implemented, not supported, rejected")
	}
	return out
}()

// A call that changes several things may have done some of them when the server refuses it,
// whatever it says: it is made once, nobody is told that it may be made again, and a
// transaction in which it was is aborted.
func TestWhatIsRefusedInTheMiddleIsNotRepeated(t *testing.T) {
	for name, c := range midwayCalls {
		for said, answer := range midwayAnswers {
			if large := strings.HasSuffix(name, "in parts"); large && !slices.Contains([]string{"Unimplemented", "Unauthenticated", "page 404"}, said) {
				continue // the batch is large
			}
			for _, inTx := range []bool{false, true} {
				say := fmt.Sprintf("%s, answered by %s, in a transaction: %v", name, said, inTx)
				t.Run(say, func(t *testing.T) {
					inBubble(t, testserver.Strict(), Config{MaxSize: 2}, func(r *rig) {
						refusedMidway(r, c.sql, c.at, answer, c.call, inTx)
					})
				})
			}
		}
	}
}

func refusedMidway(r *rig, sql string, at []testserver.Point, answer testserver.Effect, call func(context.Context, midwayCaller) error, inTx bool) {
	r.exec("CREATE TABLE memory.t (k BIGINT)")
	var faults []*testserver.SetFault
	for _, at := range at {
		faults = append(faults, r.srv.Faults().Set(testserver.Fault{On: at, SQL: sql, After: sql == "INGEST", Do: answer})) // after: all rows were taken
	}
	var err, after error
	if inTx {
		after = r.pool.InTx(r.Context(), TxOptions{Attempts: 1}, func(ctx context.Context, tx *Tx) error {
			err = call(ctx, tx)
			return nil
		})
	} else {
		err = call(r.Context(), r.pool)
	}
	require.Error(r, err)
	seen := 0
	for _, f := range faults {
		seen += f.Fired()
	}
	assert.Equal(r, 1, seen, "%v", err)
	assert.False(r, SafeToRetry(err), "%v", err)
	var e *Error
	require.ErrorAs(r, err, &e)
	if e.Fault == FaultStatement || e.Fault == FaultAuth || e.Fault == FaultUnsupported || e.Fault == FaultLimit { // the server refuses
		assert.Equal(r, !inTx, e.Partial, "%v", err)
	}
	if inTx {
		assert.True(r, errors.Is(after, ErrTxAborted) || errors.Is(after, ErrSessionLost), "%v: %v", err, after)
	}
}

// A proxy without a server behind it answers everything by a page: that shows no session.
func TestAPageIsNoAnswerToThePoolsPing(t *testing.T) {
	for _, text := range []string{"unexpected HTTP status code received from server: 404 (Not Found)", "transport: the server has answered with HTTP status 404 and content type \"text/html\": it speaks no gRPC there"} {
		inBubble(t, testserver.Strict(), Config{MaxSize: 2}, func(r *rig) {
			require.NoError(r, r.pool.Ping(r.Context()))
			fault := r.srv.Faults().Set(testserver.Fault{On: testserver.OnGetFlightInfo, Do: testserver.Fail(codes.Unimplemented, text)})
			require.Error(r, r.pool.Ping(r.Context()))
			fault.Clear()
			require.NoError(r, r.pool.Ping(r.Context()))
		})
	}
}

// failingCredentials are of gRPC's client, which fails an RPC as UNAUTHENTICATED before it is sent.
type failingCredentials struct{ fail atomic.Bool } // the next one

func (f *failingCredentials) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	if f.fail.Swap(false) {
		return nil, errors.New("no token just now")
	}
	return nil, nil
}

func (*failingCredentials) RequireTransportSecurity() bool { return false }

// Of several changes that were not sent nothing is done.
func TestSeveralChangesWithoutACredentialToSendAreMadeAgain(t *testing.T) {
	for name, c := range midwayCalls {
		if name == "rows" || strings.HasPrefix(name, "ingest") {
			continue // the statement was prepared before, or the rows can be read once
		}
		creds := &failingCredentials{}
		inBubble(t, testserver.Strict(), Config{MaxSize: 2, DialOptions: []grpc.DialOption{grpc.WithPerRPCCredentials(creds)}}, func(r *rig) {
			r.exec("CREATE TABLE memory.t (k BIGINT)")
			synctest.Wait()
			creds.fail.Store(true)
			if err := c.call(r.Context(), r.pool); err != nil {
				assert.NotEqual(r, FaultAuth, backend.FaultIn(err), "%s: %v", name, err) // the server's own word
			}
			require.False(r, creds.fail.Load())
			err := r.pool.InTx(r.Context(), TxOptions{Attempts: 1}, func(ctx context.Context, tx *Tx) error {
				synctest.Wait()
				creds.fail.Store(true)
				err := c.call(ctx, tx)
				assert.True(r, SafeToRetry(err), "%s: %v", name, err)
				return nil
			})
			assert.NoError(r, err, name)
		})
	}
}
