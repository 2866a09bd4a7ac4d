package flightpool

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/testserver"
)

// answer is what a server, or a proxy before it, says in place of the answer to an RPC.
type answer struct {
	code codes.Code
	text string
}

// proxyAnswers are those of proxies, as the statuses of gRPC that a client makes of them. They come
// before the server has seen the request, and after it has done what was asked.
var proxyAnswers = []answer{
	{codes.Unavailable, "upstream connect error or disconnect/reset before headers. reset reason: connection termination"},
	{codes.Unavailable, "unexpected HTTP status code received from server: 503 (Service Unavailable); transport: received unexpected content-type \"text/html\""},
	{codes.Unavailable, "no healthy upstream"},
	{codes.DeadlineExceeded, "stream timeout"},
	{codes.DeadlineExceeded, "upstream request timeout"},
	{codes.Internal, "stream terminated by RST_STREAM with error code: PROTOCOL_ERROR"},
	{codes.Unavailable, "stream terminated by RST_STREAM with error code: REFUSED_STREAM"},
	{codes.Canceled, "stream terminated by RST_STREAM with error code: CANCEL"},
	{codes.Canceled, ""},
	{codes.ResourceExhausted, "overflow"},
	{codes.Unknown, "unexpected HTTP status code received from server: 409 (Conflict)"},
	{codes.Unknown, "unexpected HTTP status code received from server: 500 (Internal Server Error); transport: received unexpected content-type \"text/html\""},
	{codes.PermissionDenied, "unexpected HTTP status code received from server: 403 (Forbidden); transport: received unexpected content-type \"text/html\""},
	{codes.Unimplemented, "unexpected HTTP status code received from server: 404 (Not Found); transport: received unexpected content-type \"text/html\""},
	{codes.Internal, ""},
	{codes.Unknown, ""},
	{codes.Internal, "Software caused connection abort (os error 103)"},
	{codes.Unknown, "The request was aborted."},
	{codes.Internal, "upstream sent too large header"},
	{codes.DataLoss, ""},
}

// refusals are answers that name a reason. They come before anything is done.
var refusals = []answer{
	{codes.PermissionDenied, "RBAC: access denied"}, {codes.Unimplemented, ""}, {codes.Unauthenticated, "Jwt is missing"},
	{codes.NotFound, "no route"}, {codes.InvalidArgument, "header too long"},
}

// conflicts are what an engine says of a COMMIT that another was faster than.
var conflicts = []answer{{codes.Aborted, "conflict"}, {codes.Internal, "TransactionContext Error: Failed to commit: write-write conflict"}}

// txWords is one program of transactions, and what was said of its rows.
type txWords struct {
	r     *rig
	rng   *rand.Rand
	s     *SessionHandle
	next  int
	steps []string
	loose map[int]error // rows outside of transactions
	txs   []*txWord
}

type txWord struct {
	rows map[int]error
	how  string
	err  error
}

func (w *txWords) note(what string, err error) {
	w.steps = append(w.steps, fmt.Sprintf("%s: %v", what, err))
}

func (w *txWords) ctx() (context.Context, context.CancelFunc) {
	if w.rng.IntN(3) == 0 {
		return context.WithCancel(w.r.Context())
	}
	return context.WithTimeout(w.r.Context(), time.Duration(w.rng.IntN(3000)+200)*ms)
}

type updater interface {
	Update(ctx context.Context, sql string, args ...any) (UpdateResult, error)
	Query(ctx context.Context, sql string, args ...any) (*QueryResult, error)
}

func (w *txWords) insert(s updater, rows map[int]error) error {
	ctx, stop := w.ctx()
	defer stop()
	w.next++
	v := w.next
	table := "t"
	if w.r.srv.Profile().AppendTo != "" && w.rng.IntN(4) == 0 {
		table = "swanlake.t"
	}
	var err error
	switch w.rng.IntN(3) {
	case 0:
		_, err = s.Update(ctx, fmt.Sprintf("INSERT INTO %s VALUES (?)", w.r.bulkTable()), int64(v))
	default:
		_, err = s.Update(ctx, fmt.Sprintf("INSERT INTO %s VALUES (%d)", table, v))
	}
	rows[v] = err
	w.note(fmt.Sprintf("insert %d", v), err)
	return err
}

func (w *txWords) read(s updater) error {
	ctx, stop := w.ctx()
	defer stop()
	err := drained(s.Query(ctx, "SELECT count(*) FROM t"))
	w.note("read", err)
	return err
}

// fault sets what goes wrong from now on.
func (w *txWords) fault() {
	points := []testserver.Point{
		testserver.OnEnd, testserver.OnEnd, testserver.OnEnd, testserver.OnBegin, testserver.OnDoPut, testserver.OnGetFlightInfo, testserver.OnDoGet,
		testserver.OnPrepare, "ClosePreparedStatement", "BeginSavepoint", "EndSavepoint",
	}
	f := testserver.Fault{On: points[w.rng.IntN(len(points))], Skip: w.rng.IntN(3), Times: 1 + w.rng.IntN(3), After: w.rng.IntN(2) == 0}
	name := ""
	switch n := w.rng.IntN(12); {
	case n > 9: // the engine's own, of a transaction that it has
		f.On, f.SQL, f.After = testserver.OnStatement, "COMMIT", false
		a := conflicts[w.rng.IntN(len(conflicts))]
		f.Do, name = testserver.Fail(a.code, a.text), fmt.Sprint(a)
	case n == 0:
		f.Do, name = testserver.Kill(), "kill"
	case n == 1:
		f.Do, name = testserver.Freeze(), "freeze"
	case n == 2:
		f.Do, name = testserver.Delay(time.Duration(w.rng.IntN(8))*time.Second), "delay"
	case n == 3:
		f.Do, name, f.After = testserver.Evict(), "evict", false
	case n < 7 && !f.After:
		a := refusals[w.rng.IntN(len(refusals))]
		f.Do, name = testserver.Fail(a.code, a.text), fmt.Sprint(a)
	default:
		a := proxyAnswers[w.rng.IntN(len(proxyAnswers))]
		f.Do, name = testserver.Fail(a.code, a.text), fmt.Sprint(a)
	}
	w.r.srv.Faults().Set(f)
	w.note(fmt.Sprintf("FAULT on %s skip %d times %d after %t: %s", f.On, f.Skip, f.Times, f.After, name), nil)
}

// one runs a transaction by hand, by WithTransaction or by InTx.
func (w *txWords) one() {
	for range w.rng.IntN(3) {
		w.fault()
	}
	switch w.rng.IntN(5) {
	case 0:
		ctx, stop := w.ctx()
		defer stop()
		tx := &txWord{rows: map[int]error{}, how: "WithTransaction"}
		tx.err = w.s.WithTransaction(ctx, func(_ context.Context, s *SessionHandle) error { return w.body(s, tx) })
		w.txs = append(w.txs, tx)
		w.note(tx.how, tx.err)
	case 1:
		ctx, stop := w.ctx()
		defer stop()
		var tx *txWord
		err := w.r.pool.InTx(ctx, TxOptions{}, func(_ context.Context, t *Tx) error {
			if tx != nil {
				tx.how, tx.err = "repeated", ErrTxAborted
			}
			tx = &txWord{rows: map[int]error{}, how: "InTx"}
			w.txs = append(w.txs, tx)
			return w.body(t, tx)
		})
		if tx != nil {
			tx.err = err
		}
		w.note("InTx", err)
	case 2:
		_ = w.insert(w.s, w.loose)
	default:
		w.byHand()
	}
}

func (w *txWords) body(s updater, tx *txWord) error {
	for range 1 + w.rng.IntN(3) {
		err := w.insert(s, tx.rows)
		if err == nil && w.rng.IntN(3) == 0 {
			err = w.read(s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *txWords) byHand() {
	ctx, stop := w.ctx()
	defer stop()
	err := w.s.BeginTransaction(ctx)
	w.note("begin", err)
	if err != nil {
		return
	}
	tx := &txWord{rows: map[int]error{}, how: "Close"}
	w.txs = append(w.txs, tx)
	_ = w.body(w.s, tx)
	if w.rng.IntN(4) == 0 {
		time.Sleep([]time.Duration{5 * time.Second, 31 * time.Second, 16 * time.Minute}[w.rng.IntN(3)])
		w.note("pause", nil)
	}
	ctx, stop = w.ctx()
	defer stop()
	if tx.end(ctx, w); unsent(tx.err) {
		tx.end(w.r.Context(), w)
	}
}

// end commits or rolls back.
func (tx *txWord) end(ctx context.Context, w *txWords) {
	if tx.how = "Commit"; w.rng.IntN(3) == 0 {
		tx.how = "Rollback"
		tx.err = w.s.Rollback(ctx)
	} else {
		tx.err = w.s.Commit(ctx)
	}
	w.note(tx.how, tx.err)
}

func (w *txWords) stored() map[int]int {
	out := map[int]int{}
	tables := []string{"t"}
	if w.r.srv.Profile().AppendTo != "" {
		tables = append(tables, "swanlake.t")
	}
	for _, table := range tables {
		res, err := w.r.pool.Query(w.r.Context(), "SELECT * FROM "+table)
		require.NoError(w.r, err)
		for res.Next() {
			for i := range int(res.RecordBatch().NumRows()) {
				n, err := strconv.Atoi(res.RecordBatch().Column(0).ValueStr(i))
				require.NoError(w.r, err)
				out[n]++
			}
		}
		require.NoError(w.r, res.Err())
		res.Release()
	}
	return out
}

// judge compares the words with what is stored.
func (w *txWords) judge() (wrong []string) {
	stored := w.stored()
	say := func(v int, want string, err error) {
		wrong = append(wrong, fmt.Sprintf("%d is stored %d times, want %s: %v", v, stored[v], want, err))
	}
	for v, err := range w.loose {
		switch n := stored[v]; {
		case err == nil && n != 1:
			say(v, "1", err)
		case err != nil && (SafeToRetry(err) || IsConflict(err)) && n != 0:
			say(v, "0: safe to repeat", err)
		case n > 1:
			say(v, "1 at most", err)
		}
	}
	for _, tx := range w.txs {
		for v, err := range tx.rows {
			n := stored[v]
			lost := errors.Is(tx.err, ErrSessionLost) && w.r.srv.Profile().UnknownTxOK
			switch {
			case n > 1:
				say(v, "1 at most", tx.err)
			case (tx.how == "Commit" || tx.how == "Rollback") && unsent(tx.err) && w.r.srv.Profile().UnknownTxOK: // the call may be made again
			case unsent(err) && n != 0:
				say(v, "0: it was not sent", err)
			case tx.how == "Close":
			case tx.err == nil && tx.how != "Rollback" && err == nil && n != 1:
				say(v, "1 by "+tx.how, tx.err)
			case tx.err == nil && tx.how != "Rollback" && err != nil && !unsent(err):
				say(v, "no success of the transaction", err)
			case tx.err == nil && tx.how == "Rollback" && n != 0:
				say(v, "0 by Rollback", nil)
			case tx.err != nil && n != 0 && (SafeToRetry(tx.err) || IsConflict(tx.err)):
				say(v, "0: safe to repeat", tx.err)
			case tx.err != nil && n != 0 && !lost && !errors.Is(tx.err, ErrCommitUnknown):
				say(v, "0 by "+tx.how, tx.err)
			}
		}
	}
	return wrong
}

// unsent reports whether a transaction goes on after err, without what has failed.
func unsent(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Unsent || e.Fault == FaultUnsupported && !strings.Contains(err.Error(), "HTTP status") || e.Fault == FaultUsage)
}

// Whatever a server or a proxy answers at any RPC of a transaction, before it is done or after, what
// was said of it holds.
func TestEveryWordOnATransactionHoldsWhateverAProxyAnswers(t *testing.T) {
	seed, _ := strconv.ParseUint(os.Getenv("PROVE_SEED"), 10, 64)
	many, _ := strconv.Atoi(os.Getenv("PROVE_SCENES"))
	for i := range uint64(max(many, 30)) {
		for _, profile := range []testserver.Profile{testserver.Strict(), testserver.SwanLake(), testserver.GizmoSQL()} {
			rng := rand.New(rand.NewPCG(seed+i, 7)) //nolint:gosec // a repeatable sequence
			profile.JanitorEvery = 0
			opts := testserver.Options{Profile: profile, Users: map[string]string{"u": "p"}}
			cfg := Config{MaxSize: 3, MaxLifetime: -1, HealthCheck: HealthCheck{Interval: -1}, Auth: BasicAuth("u", "p")}
			if profile.Name != "gizmosql" {
				opts.Users, cfg.Auth = nil, Auth{}
			}
			if rng.IntN(3) == 0 { // gRPC's own client
				cfg.DialOptions = []grpc.DialOption{grpc.WithUserAgent("test")}
			}
			if rng.IntN(3) == 0 {
				cfg.StatementCache = 8
			}
			if rng.IntN(4) == 0 {
				cfg.OnConnect = paint
			}
			inBubbleOn(t, opts, cfg, func(r *rig) {
				r.exec("CREATE TABLE t (a BIGINT)")
				if r.srv.Profile().AppendTo != "" {
					r.exec("CREATE TABLE swanlake.t (a BIGINT)")
				}
				w := &txWords{r: r, rng: rng, s: r.session(), loose: map[int]error{}}
				for range 1 + rng.IntN(3) {
					w.one()
				}
				w.note("Close", w.s.Close())
				time.Sleep(2 * time.Minute)
				r.srv.Faults().Clear()
				r.srv.Faults().ThawConns()
				r.srv.Faults().EvictSessions()
				time.Sleep(2 * time.Minute)
				if wrong := w.judge(); len(wrong) > 0 {
					slices.Sort(wrong)
					r.Errorf("seed %d, %s: %s\n%s", seed+i, r.srv.Profile().Name, strings.Join(wrong, "\n"), strings.Join(w.steps, "\n"))
				}
				r.srv.Faults().EvictSessions()
			})
		}
	}
}
