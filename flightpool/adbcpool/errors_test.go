package adbcpool

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// errorCase is something that goes wrong, and how it must read on every backend.
type errorCase struct {
	name string

	// How it comes about: the fault, if any, stands before the call.
	fault testserver.Fault
	call  func(ctx context.Context, r rig, kind string, p *flightpool.FlightSQLPool) error

	whose  flightpool.Fault
	stage  backend.Stage
	code   codes.Code // what status.FromError finds
	ctxErr error      // what errors.Is finds of the context, and of no other
	lost   bool       // ErrSessionLost is found
	safe   bool       // SafeToRetry

	// undriven says that ADBC's driver on our transports has no part in it,
	// so that there is no adbc.Error either.
	undriven bool
}

const create = "CREATE TABLE t (v BIGINT)"

func read(ctx context.Context, _ rig, _ string, p *flightpool.FlightSQLPool) error {
	rows, err := p.Query(ctx, generate(20_000))
	if err != nil {
		return err
	}
	defer rows.Release()
	for rows.Next() {
		continue
	}
	return rows.Err()
}

// readCut loses its connection when some rows have come.
func readCut(ctx context.Context, r rig, _ string, p *flightpool.FlightSQLPool) error {
	rows, err := p.Query(ctx, generate(1_000_000))
	if err != nil {
		return err
	}
	defer rows.Release()
	for n := 0; rows.Next(); n++ {
		if n == 0 {
			r.server.Faults().KillConns()
		}
	}
	return rows.Err()
}

func change(ctx context.Context, _ rig, _ string, p *flightpool.FlightSQLPool) error {
	_, err := p.Update(ctx, create)
	return err
}

// cancelledAfter is a call whose caller loses interest.
func cancelledAfter(d time.Duration, call func(context.Context, rig, string, *flightpool.FlightSQLPool) error) func(context.Context, rig, string, *flightpool.FlightSQLPool) error {
	return func(ctx context.Context, r rig, kind string, p *flightpool.FlightSQLPool) error {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		defer time.AfterFunc(d, cancel).Stop()
		return call(ctx, r, kind, p)
	}
}

// opening is an error of opening a connection, which a call waits for.
func opening(arrange func(r rig)) func(context.Context, rig, string, *flightpool.FlightSQLPool) error {
	return func(ctx context.Context, r rig, kind string, _ *flightpool.FlightSQLPool) error {
		p := r.pool(kind, func(cfg *flightpool.Config) { cfg.MinIdle, cfg.AcquireTimeout = -1, 500*time.Millisecond })
		arrange(r)
		return read(ctx, r, kind, p)
	}
}

var errorCases = []errorCase{
	{name: "deadline of a read that plans", fault: testserver.Fault{On: testserver.OnGetFlightInfo, SQL: "generate", Do: testserver.Hang()}, call: read,
		whose: flightpool.FaultContext, stage: backend.StageExecute, code: codes.Canceled, ctxErr: context.DeadlineExceeded, safe: true},
	{name: "deadline of a read that fetches", fault: testserver.Fault{On: testserver.OnDoGet, SQL: "generate", Do: testserver.Hang()}, call: read,
		whose: flightpool.FaultContext, stage: backend.StageFetch, code: codes.Canceled, ctxErr: context.DeadlineExceeded, safe: true},
	{name: "deadline of a change", fault: testserver.Fault{On: testserver.OnDoPut, SQL: "CREATE", Do: testserver.Hang()}, call: change,
		whose: flightpool.FaultContext, stage: backend.StageExecute, code: codes.Canceled, ctxErr: context.DeadlineExceeded},
	{name: "cancel of a read", fault: testserver.Fault{On: testserver.OnGetFlightInfo, SQL: "generate", Do: testserver.Hang()}, call: cancelledAfter(time.Second, read),
		whose: flightpool.FaultContext, stage: backend.StageExecute, code: codes.Canceled, ctxErr: context.Canceled, safe: true},
	{name: "cancel of a change", fault: testserver.Fault{On: testserver.OnDoPut, SQL: "CREATE", Do: testserver.Hang()}, call: cancelledAfter(time.Second, change),
		whose: flightpool.FaultContext, stage: backend.StageExecute, code: codes.Canceled, ctxErr: context.Canceled},
	{name: "SQL error of a read", fault: testserver.Fault{On: testserver.OnGetFlightInfo, SQL: "generate", Do: testserver.Fail(codes.InvalidArgument, "no")}, call: read,
		whose: flightpool.FaultStatement, stage: backend.StageExecute, code: codes.InvalidArgument, safe: true},
	{name: "SQL error of a change", fault: testserver.Fault{On: testserver.OnDoPut, SQL: "CREATE", Do: testserver.Fail(codes.AlreadyExists, "no")}, call: change,
		whose: flightpool.FaultStatement, stage: backend.StageExecute, code: codes.AlreadyExists},
	{name: "dead server at open", call: opening(func(r rig) { require.NoError(r, r.server.Close()) }),
		whose: flightpool.FaultTransport, stage: backend.StageDial, code: codes.Unavailable, safe: true, undriven: true},
	{name: "cut in flight, read without rows yet", fault: testserver.Fault{On: testserver.OnDoGet, SQL: "generate", Do: testserver.Kill()}, call: read,
		whose: flightpool.FaultTransport, stage: backend.StageFetch, code: codes.Unavailable, lost: true, safe: true},
	{name: "cut in flight, read with rows", call: readCut,
		whose: flightpool.FaultTransport, stage: backend.StageFetch, code: codes.Unavailable, lost: true},
	{name: "cut in flight, change", fault: testserver.Fault{On: testserver.OnDoPut, SQL: "CREATE", Do: testserver.Kill()}, call: change,
		whose: flightpool.FaultTransport, stage: backend.StageExecute, code: codes.Unavailable, lost: true},
	{name: "cut in flight, change whose reply is lost", fault: testserver.Fault{On: testserver.OnDoPut, After: true, SQL: "CREATE", Do: testserver.Kill()}, call: change,
		whose: flightpool.FaultTransport, stage: backend.StageExecute, code: codes.Unavailable, lost: true},
	{name: "unauthenticated read", fault: testserver.Fault{On: testserver.OnGetFlightInfo, SQL: "generate", Do: testserver.Fail(codes.Unauthenticated, "who?")}, call: read,
		whose: flightpool.FaultAuth, stage: backend.StageExecute, code: codes.Unauthenticated, safe: true},
	{name: "page for a change", fault: testserver.Fault{On: testserver.OnDoPut, SQL: "CREATE", Do: testserver.Fail(codes.Unauthenticated, `unexpected HTTP status code received from server: 401 (Unauthorized); transport: received unexpected content-type "text/html"`)}, call: change,
		whose: flightpool.FaultAuth, stage: backend.StageExecute, code: codes.Unauthenticated},
	{name: "unauthenticated change", fault: testserver.Fault{On: testserver.OnDoPut, SQL: "CREATE", Do: testserver.Fail(codes.Unauthenticated, "who?")}, call: change,
		whose: flightpool.FaultAuth, stage: backend.StageExecute, code: codes.Unauthenticated, safe: true},
	{name: "over a limit of the server", fault: testserver.Fault{On: testserver.OnGetFlightInfo, SQL: "generate", Do: testserver.Fail(codes.ResourceExhausted, "no memory")}, call: read,
		whose: flightpool.FaultLimit, stage: backend.StageExecute, code: codes.ResourceExhausted, safe: true},
	{name: "over the server's sessions at open", call: opening(func(r rig) { r.server.Faults().LimitSessions(1) }),
		whose: flightpool.FaultLimit, stage: backend.StageProbe, code: codes.ResourceExhausted, safe: true, undriven: true},
}

// TestErrorsReadTheSameOnEveryBackend is the table that users rely on.
func TestErrorsReadTheSameOnEveryBackend(t *testing.T) {
	for _, test := range errorCases {
		for _, kind := range kinds {
			t.Run(test.name+"/"+kind, func(t *testing.T) {
				inBubble(t, testserver.Strict(), func(r rig) {
					p := r.pool(kind)
					require.NoError(r, p.WaitReady(r.Context(), 1))
					if test.fault.Do != nil {
						defer r.server.Faults().Set(test.fault).Clear()
					}
					ctx, cancel := context.WithTimeout(r.Context(), time.Second)
					defer cancel()
					began := time.Now()
					err := test.call(ctx, r, kind, p)
					require.LessOrEqual(r, time.Since(began), time.Second+50*time.Millisecond)
					test.judge(r, kind, err)
				})
			})
		}
	}
}

func (test errorCase) judge(r rig, kind string, err error) {
	r.Helper()
	var e *flightpool.Error
	require.ErrorAs(r, err, &e)
	require.Equal(r, test.whose, e.Fault, "%v", err)
	require.Equal(r, test.stage, e.Stage, "%v", err)
	s, ok := status.FromError(e.Err)
	require.True(r, ok, "a status is found: %v", err)
	require.Equal(r, test.code, s.Code(), "%v", err)
	for _, ended := range []error{context.DeadlineExceeded, context.Canceled} {
		require.Equal(r, errors.Is(test.ctxErr, ended), errors.Is(err, ended), "%v: %v", ended, err)
	}
	require.Equal(r, test.lost, errors.Is(err, flightpool.ErrSessionLost), "%v", err)
	require.Equal(r, test.safe, flightpool.SafeToRetry(err), "%v", err)
	var value adbc.Error
	var pointer *adbc.Error
	driven := kind == "new" || kind == "open" && !test.undriven
	require.Equal(r, driven, errors.As(err, &value), "%v", err)
	require.Equal(r, driven, errors.As(err, &pointer), "%v", err)
}
