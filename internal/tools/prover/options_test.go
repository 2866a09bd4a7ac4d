package prover

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"strconv"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/reservoir"
)

// optioned makes calls with the options of their step.
type optioned struct {
	statements
	opts    flightpool.QueryOptions
	headers *headers
}

// as has q make its calls as a step says.
func (w *world) as(s step, q statements) statements {
	if s.limit == 0 && !s.kept && !s.headed {
		return q
	}
	opts := flightpool.QueryOptions{Timeout: s.limit, NoCancel: s.kept}
	if s.headed {
		opts.Headers = metadata.Pairs(stepHeader, w.headers.next())
	}
	return optioned{q, opts, w.headers}
}

func (o optioned) with(opts flightpool.QueryOptions) flightpool.QueryOptions {
	all := o.opts
	all.NoCancel = all.NoCancel || opts.NoCancel
	all.Params, all.Args, all.Progress = opts.Params, opts.Args, opts.Progress
	return all
}

func (o optioned) Query(ctx context.Context, sql string, args ...any) (*flightpool.QueryResult, error) {
	return o.QueryWithOptions(ctx, sql, flightpool.QueryOptions{Args: args})
}

func (o optioned) QueryWithOptions(ctx context.Context, sql string, opts flightpool.QueryOptions) (*flightpool.QueryResult, error) {
	res, err := o.statements.QueryWithOptions(ctx, sql, o.with(opts))
	o.answered(err)
	return res, err
}

func (o optioned) Update(ctx context.Context, sql string, args ...any) (flightpool.UpdateResult, error) {
	return o.UpdateWithOptions(ctx, sql, flightpool.QueryOptions{Args: args})
}

func (o optioned) UpdateWithOptions(ctx context.Context, sql string, opts flightpool.QueryOptions) (flightpool.UpdateResult, error) {
	res, err := o.statements.UpdateWithOptions(ctx, sql, o.with(opts))
	o.answered(err)
	return res, err
}

func (o optioned) UpdateWithRecordBatch(ctx context.Context, sql string, b arrow.RecordBatch) (flightpool.UpdateResult, error) {
	return o.UpdateWithOptions(ctx, sql, flightpool.QueryOptions{Params: b})
}

// answered sees to it that the headers of a call which the server has answered have come there.
func (o optioned) answered(err error) {
	if err == nil && len(o.opts.Headers) > 0 {
		o.headers.check(o.opts.Headers.Get(stepHeader)[0])
	}
}

// takesOptions are the verbs whose calls have options.
var takesOptions = map[string]bool{
	"insert": true, "args": true, "keep": true, "alter": true, "returned": true, "bulk": true, "each": true, "read": true, "find": true, "slow": true, "keepslow": true,
	"clash": true, "aside": true, "bad": true, "typo": true, "set": true, "temp": true, "use": true, "twin": true,
}

// stepHeader has the number of a call.
const stepHeader = "x-step"

// headers are what calls have sent along. Only the RPCs of a call itself may have it.
type headers struct {
	mu   sync.Mutex // guards what follows
	last int
	seen map[string]bool
	odd  []string // RPCs that are not a call's own, and calls without one that has them
}

// check is for a call that the server has answered.
func (h *headers) check(number string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.seen[number] {
		h.odd = append(h.odd, "none with "+number)
	}
}

func (h *headers) next() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	return strconv.Itoa(h.last)
}

// see looks at what an RPC has brought.
func (h *headers) see(ctx context.Context, rpc string) {
	md, _ := metadata.FromIncomingContext(ctx)
	got := md.Get(stepHeader)
	if len(got) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen[got[0]] = true
	switch rpc {
	case "GetFlightInfo", "PollFlightInfo", "DoGet", "DoPut", "CreatePreparedStatement", "ClosePreparedStatement", "GetSchema", "RenewFlightEndpoint":
	default:
		h.odd = append(h.odd, rpc)
	}
}

// foreign is what another call has failed with: the cause of a context's end, which says nothing of the call that it ends.
type foreign struct{ error }

func (f *foreign) Unwrap() error { return f.error }

// causes are such errors, each of which would mean something else of the call that it ends.
var causes = map[string]error{
	"aborted":   &flightpool.Error{Op: "Commit", Fault: flightpool.FaultStatement, SQLState: "40001", Err: flightpool.ErrTxAborted},
	"closed":    &flightpool.Error{Op: "Query", Fault: flightpool.FaultUsage, Unsent: true, Err: flightpool.ErrClosed},
	"unsent":    &flightpool.Error{Op: "Query", Stage: backend.StageAcquire, Fault: flightpool.FaultTransport, Unsent: true, Err: status.Error(codes.Unavailable, "the program's other call")},
	"read":      &flightpool.Error{Op: "Query", Stage: backend.StageFetch, Fault: flightpool.FaultTransport, Read: true, Err: io.ErrUnexpectedEOF},
	"lost":      &flightpool.Error{Op: "Update", Fault: flightpool.FaultTransport, Err: flightpool.ErrSessionLost},
	"unknown":   &flightpool.Error{Op: "Commit", Fault: flightpool.FaultTransport, Err: flightpool.ErrCommitUnknown},
	"refused":   &flightpool.Error{Op: "Update", Stage: backend.StageExecute, Fault: flightpool.FaultStatement, SQLState: "23505", Err: status.Error(codes.AlreadyExists, "the program's other call")},
	"busy":      &flightpool.Error{Op: "Update", Fault: flightpool.FaultUsage, Unsent: true, Err: backend.ErrBusy},
	"lacking":   &flightpool.Error{Op: "Update", Fault: flightpool.FaultUnsupported, Err: status.Error(codes.Unimplemented, "the program's other call")},
	"expired":   &flightpool.Error{Op: "Update", Fault: flightpool.FaultAuth, Err: status.Error(codes.Unauthenticated, "the program's other call")},
	"exhausted": &reservoir.ExhaustedError{},
	"badconn":   driver.ErrBadConn,
	"norows":    flightpool.ErrNoRows,
	"end":       io.EOF,
	"handle":    &flightpool.Error{Op: "Query", Fault: flightpool.FaultUsage, Unsent: true, Err: backend.ErrHandleClosed},
	"late":      &flightpool.Error{Op: "Query", Fault: flightpool.FaultContext, Ctx: context.DeadlineExceeded, Err: context.DeadlineExceeded},
}

// own is what an error says of its call itself, whatever the cause of its context's end would say.
type own struct{ err error }

func (o own) Error() string     { return o.err.Error() }
func (o own) SafeToRetry() bool { return flightpool.SafeToRetry(o.err) }

func (o own) Is(target error) bool {
	if target == context.Canceled || target == context.DeadlineExceeded { // of a cause that wraps the end, which is told alone
		return errors.Is(o.err, target)
	}
	return walk(o.err, func(err error) bool {
		is, ok := err.(interface{ Is(error) bool })
		return err == target || ok && is.Is(target)
	})
}

func (o own) As(target any) bool {
	return walk(o.err, func(err error) bool { return errors.As(alone{err}, target) })
}

// alone is an error without those that it wraps.
type alone struct{ error }

func (a alone) As(target any) bool {
	if e, ok := target.(**flightpool.Error); ok {
		*e, ok = a.error.(*flightpool.Error) //nolint:errorlint // walk follows the chain
		return ok
	}
	if e, ok := target.(**flightpool.BatchError); ok {
		*e, ok = a.error.(*flightpool.BatchError) //nolint:errorlint // see above
		return ok
	}
	return false
}

// walk reports whether any error of a chain is wanted, but for what a foreign one wraps.
func walk(err error, wanted func(error) bool) bool {
	if _, ok := err.(*foreign); ok || err == nil { //nolint:errorlint // it follows the chain itself
		return false
	}
	if wanted(err) {
		return true
	}
	switch e := err.(type) { //nolint:errorlint // see above
	case interface{ Unwrap() error }:
		return walk(e.Unwrap(), wanted)
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			if walk(one, wanted) {
				return true
			}
		}
	}
	return false
}

// causeOf is the cause of the end of a step's context, nil for none. "last" is the error of the call that has failed last.
func (w *world) causeOf(s step) error {
	cause := causes[s.caused]
	if s.caused == "last" {
		w.mu.Lock()
		cause = w.failed
		w.mu.Unlock()
	}
	if cause == nil {
		return nil
	}
	return &foreign{cause}
}

// leadBack are the statements of ResetSQL that undo what set, use and temp do.
func (w *world) leadBack() []string {
	if w.program.prepare != "" {
		return []string{"SET colour = 'blue'", "USE " + preparedPlace, "DROP TABLE IF EXISTS tmp"}
	}
	return []string{"RESET SESSION colour", "USE memory.main", "DROP TABLE IF EXISTS tmp"}
}
