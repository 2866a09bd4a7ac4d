package adbcpool

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
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// scene is some use of a pool while things go wrong, and what was said of it.
type scene struct {
	r        rig
	rng      *rand.Rand
	p        *flightpool.FlightSQLPool
	steps    []string
	next     int
	changes  []*sceneChange
	txs      []*sceneTx
	evicted  bool
	wrong    []string
	renewals *renewals
}

// sceneChange is a call that stores values, or a statement of a batch.
type sceneChange struct {
	values []int
	err    error
	tx     *sceneTx // nil: outside of transactions
	undone bool     // by a RollbackTo that has succeeded
	what   string
}

// sceneTx is a transaction and what was said of its end.
type sceneTx struct {
	how   string
	err   error
	marks []int // for each savepoint how many changes came before, in the scene
	lost  error // of a RollbackTo that has failed after it was sent
}

// sceneTable is a name that says the same wherever a session is.
func sceneTable(p testserver.Profile) string {
	if p.AppendTo != "" {
		return p.AppendTo + ".t"
	}
	return "memory.main.t"
}

var sceneIngest = flightpool.IngestOptions{Catalog: "memory", Schema: "main"}

type storer interface {
	flightpool.Querier
	UpdateWithOptions(ctx context.Context, sql string, opts flightpool.QueryOptions) (flightpool.UpdateResult, error)
	SendBatch(ctx context.Context, b *flightpool.Batch) error
}

type preparer interface {
	PrepareQuery(ctx context.Context, sql string) (*flightpool.PreparedQuery, error)
}

func (w *scene) note(what string, err error) {
	w.steps = append(w.steps, fmt.Sprintf("%s: %v", what, err))
}

func (w *scene) ctx() (context.Context, context.CancelFunc) {
	if w.rng.IntN(3) == 0 {
		return context.WithCancel(w.r.Context())
	}
	return context.WithTimeout(w.r.Context(), time.Duration(w.rng.IntN(3000)+200)*time.Millisecond)
}

func (w *scene) profile() testserver.Profile { return w.r.server.Profile() }

func (w *scene) values(n int) []int {
	out := make([]int, n)
	for i := range out {
		w.next++
		out[i] = w.next
	}
	return out
}

func (w *scene) add(tx *sceneTx, what string, values []int, err error) error {
	w.changes = append(w.changes, &sceneChange{values: values, err: err, tx: tx, what: what})
	w.note(fmt.Sprintf("%s %v", what, values), err)
	return err
}

func batchOf(values []int) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "v", Type: arrow.PrimitiveTypes.Int64}}, nil))
	defer b.Release()
	for _, v := range values {
		b.Field(0).(*array.Int64Builder).Append(int64(v))
	}
	return b.NewRecordBatch()
}

// store makes a change by any of the ways there are.
func (w *scene) store(q storer, tx *sceneTx) error {
	ctx, stop := w.ctx()
	defer stop()
	table := sceneTable(w.profile())
	literal := func(v int) string { return fmt.Sprintf("INSERT INTO %s VALUES (%d)", table, v) }
	param := "INSERT INTO " + table + " VALUES (?)"
	switch n := w.rng.IntN(10); n {
	case 0, 1:
		v := w.values(1)
		_, err := q.Update(ctx, literal(v[0]))
		return w.add(tx, "Update", v, err)
	case 2:
		v := w.values(1)
		res, err := q.Query(ctx, literal(v[0]))
		if err == nil {
			err = res.Close()
		}
		return w.add(tx, "Query", v, err)
	case 3:
		v := w.values(1)
		_, err := q.Update(ctx, param, int64(v[0]))
		return w.add(tx, "Update with arguments", v, err)
	case 4:
		v := w.values(3)
		b := batchOf(v)
		defer b.Release()
		_, err := q.UpdateWithOptions(ctx, param, flightpool.QueryOptions{Params: b})
		return w.add(tx, "Update with rows", v, err)
	case 5:
		v := w.values(3)
		b := batchOf(v)
		defer b.Release()
		rows, err := array.NewRecordReader(b.Schema(), []arrow.RecordBatch{b})
		require.NoError(w.r, err)
		defer rows.Release()
		_, err = q.Ingest(ctx, "t", rows, sceneIngest)
		return w.add(tx, "Ingest", v, err)
	case 6:
		v := w.values(2)
		type row struct{ V int64 }
		_, err := flightpool.IngestRows(ctx, q, "t", slices.Values([]row{{int64(v[0])}, {int64(v[1])}}), sceneIngest)
		return w.add(tx, "IngestRows", v, err)
	case 7, 8:
		return w.batch(ctx, q, tx, literal, param)
	default:
		if p, ok := q.(preparer); ok {
			return w.prepared(ctx, p, tx, param)
		}
		v := w.values(1)
		_, err := q.UpdateWithOptions(ctx, literal(v[0]), flightpool.QueryOptions{Timeout: time.Second})
		return w.add(tx, "Update with a timeout", v, err)
	}
}

var errNotSent = &flightpool.Error{Op: "test", Unsent: true, Err: errors.New("not sent")}

func (w *scene) batch(ctx context.Context, q storer, tx *sceneTx, literal func(int) string, param string) error {
	var b flightpool.Batch
	v := w.values(3)
	for i, one := range v {
		if i == 1 {
			b.Queue(param, int64(one))
			continue
		}
		b.Queue(literal(one))
	}
	err := q.SendBatch(ctx, &b)
	var at *flightpool.BatchError
	for i := range v {
		said := err
		switch {
		case err == nil:
		case !errors.As(err, &at):
			said = errNotSent
		case i < at.Index:
			said = nil
		case i == at.Index && at.Err != nil:
			if said = at.Err; flightpool.SafeToRetry(err) != flightpool.SafeToRetry(at.Err) && i == 0 {
				w.wrong = append(w.wrong, fmt.Sprintf("a batch says %t of being safe to repeat: %v", flightpool.SafeToRetry(err), err))
			}
		default:
			said = errNotSent
		}
		_ = w.add(tx, fmt.Sprintf("SendBatch %d", i), v[i:i+1], said)
	}
	if err != nil && i0(at) > 0 && (flightpool.SafeToRetry(err) || tx == nil && flightpool.IsConflict(err)) {
		w.wrong = append(w.wrong, fmt.Sprintf("a batch of which a part is stored may be repeated: %v", err))
	}
	w.note("SendBatch", err)
	return err
}

func i0(e *flightpool.BatchError) int {
	if e == nil {
		return 0
	}
	return e.Index
}

func (w *scene) prepared(ctx context.Context, p preparer, tx *sceneTx, param string) error {
	stmt, err := p.PrepareQuery(ctx, param)
	w.note("PrepareQuery", err)
	if err != nil {
		return err
	}
	for range 2 {
		v := w.values(1 + w.rng.IntN(2))
		b := batchOf(v)
		_, err = stmt.UpdateWithOptions(ctx, flightpool.QueryOptions{Params: b})
		b.Release()
		if w.add(tx, "PreparedQuery.Update", v, err) != nil {
			break
		}
	}
	w.note("PreparedQuery.Close", stmt.Close(ctx))
	return err
}

var sceneAnswers = []struct {
	code codes.Code
	text string
}{
	{codes.Unavailable, "upstream connect error or disconnect/reset before headers. reset reason: connection termination"},
	{codes.Unavailable, page("503 (Service Unavailable)")}, {codes.Unavailable, page("502 (Bad Gateway)")},
	{codes.Unauthenticated, page("401 (Unauthorized)")}, {codes.PermissionDenied, page("403 (Forbidden)")}, {codes.Unimplemented, page("404 (Not Found)")},
	{codes.Unknown, page("500 (Internal Server Error)")}, {codes.DeadlineExceeded, "stream timeout"}, {codes.Canceled, ""}, {codes.ResourceExhausted, "overflow"},
	{codes.Internal, "stream terminated by RST_STREAM with error code: PROTOCOL_ERROR"}, {codes.Unavailable, "stream terminated by RST_STREAM with error code: REFUSED_STREAM"},
	{codes.Canceled, "stream terminated by RST_STREAM with error code: CANCEL"}, {codes.Internal, ""}, {codes.Unknown, ""}, {codes.DataLoss, ""},
	{codes.Unknown, "The request was aborted."}, {codes.Internal, "upstream sent too large header"},
	{codes.Unknown, "unexpected HTTP status code received from server: 409 (Conflict)"},
	{codes.Unauthenticated, "Jwt is expired"}, {codes.Unimplemented, ""}, {codes.NotFound, "no route"}, {codes.InvalidArgument, "header too long"},
	{codes.Aborted, "conflict"}, {codes.Internal, "could not serialize access"}, // a refusal from here: 19 and on
}

const firstRefusal = 19

var scenePoints = []testserver.Point{
	testserver.OnEnd, testserver.OnEnd, testserver.OnBegin, testserver.OnDoPut, testserver.OnDoPut, testserver.OnGetFlightInfo, testserver.OnDoGet,
	testserver.OnPrepare, "ClosePreparedStatement", "BeginSavepoint", "EndSavepoint", "EndSavepoint", testserver.OnSession, "SetSessionOptions", "GetSessionOptions",
	testserver.OnHandshake, testserver.OnCloseSession, testserver.OnCancel,
}

// fault sets what goes wrong from now on.
func (w *scene) fault() {
	f := testserver.Fault{On: scenePoints[w.rng.IntN(len(scenePoints))], Skip: w.rng.IntN(4), Times: 1 + w.rng.IntN(3), After: w.rng.IntN(2) == 0}
	name := ""
	switch n := w.rng.IntN(14); {
	case n == 0:
		f.Do, name = testserver.Kill(), "kill"
	case n == 1:
		f.Do, name = testserver.Freeze(), "freeze"
	case n == 2:
		f.Do, name = testserver.Delay(time.Duration(w.rng.IntN(8))*time.Second), "delay"
	case n == 3:
		f.Do, name, f.After = testserver.Evict(), "evict", false
		w.evicted = true
	case n == 4:
		f.Do, name = testserver.GoAway(), "goaway"
	case n == 5 && w.renewals != nil:
		f.Do, name = testserver.Do(func() { w.r.server.Faults().ExpireToken(w.renewals.last()) }), "revoke"
	default:
		k := w.rng.IntN(len(sceneAnswers))
		if k >= firstRefusal {
			f.After = false
		}
		a := sceneAnswers[k]
		f.Do, name = testserver.Fail(a.code, a.text), fmt.Sprint(a)
	}
	w.r.server.Faults().Set(f)
	w.note(fmt.Sprintf("FAULT on %s skip %d times %d after %t: %s", f.On, f.Skip, f.Times, f.After, name), nil)
}

// body is what a transaction does.
func (w *scene) body(q storer, tx *sceneTx) error {
	type savepoints interface {
		Savepoint(ctx context.Context, name string) error
		RollbackTo(ctx context.Context, name string) error
		ReleaseSavepoint(ctx context.Context, name string) error
	}
	sp := q.(savepoints)
	var err error
	for range 1 + w.rng.IntN(4) {
		ctx, stop := w.ctx()
		switch n := w.rng.IntN(8); {
		case n == 0:
			name := "s" + strconv.Itoa(len(tx.marks))
			said := sp.Savepoint(ctx, name)
			w.note("Savepoint "+name, said)
			if said == nil {
				tx.marks = append(tx.marks, len(w.changes))
			}
		case (n == 1 || err != nil) && len(tx.marks) > 0:
			k := w.rng.IntN(len(tx.marks))
			said := sp.RollbackTo(ctx, "s"+strconv.Itoa(k))
			w.note("RollbackTo s"+strconv.Itoa(k), said)
			switch {
			case said == nil:
				for _, c := range w.changes[tx.marks[k]:] {
					if c.tx == tx {
						c.undone = true
					}
				}
				tx.marks, err = tx.marks[:k+1], nil
			case !sceneUnsent(said):
				tx.lost = said
			}
		case n == 2 && len(tx.marks) > 0:
			k := len(tx.marks) - 1
			said := sp.ReleaseSavepoint(ctx, "s"+strconv.Itoa(k))
			w.note("ReleaseSavepoint s"+strconv.Itoa(k), said)
			if said == nil {
				tx.marks = tx.marks[:k]
			}
		case n == 3:
			w.state(ctx, q)
		default:
			if said := w.store(q, tx); said != nil {
				err = said
			}
		}
		stop()
		if err != nil && (len(tx.marks) == 0 || w.rng.IntN(2) == 0) {
			return err
		}
	}
	return err
}

// state leaves something in the session.
func (w *scene) state(ctx context.Context, q storer) {
	var err error
	what := []string{"SET colour = 'red'", "CREATE TEMP TABLE mine (v BIGINT)", "USE memory.other", "SetOption"}[w.rng.IntN(4)]
	if s, ok := q.(*flightpool.SessionHandle); ok && what == "SetOption" {
		err = s.SetOption(ctx, "colour", "blue")
	} else if what != "SetOption" {
		_, err = q.Update(ctx, what)
	}
	w.note(what, err)
}

func sceneUnsent(err error) bool {
	var e *flightpool.Error
	return errors.As(err, &e) && (e.Unsent || e.Fault == flightpool.FaultUnsupported && !strings.Contains(err.Error(), "HTTP status") || e.Fault == flightpool.FaultUsage)
}

func (w *scene) one(s *flightpool.SessionHandle) {
	for range w.rng.IntN(3) {
		w.fault()
	}
	ctx, stop := w.ctx()
	defer stop()
	switch w.rng.IntN(9) {
	case 0, 1:
		_ = w.store(w.p, nil)
	case 2:
		_ = w.store(s, nil)
	case 3:
		w.state(ctx, s)
		if w.rng.IntN(2) == 0 {
			w.state(ctx, w.p)
		}
	case 4:
		tx := &sceneTx{how: "WithTransaction"}
		w.txs = append(w.txs, tx)
		tx.err = s.WithTransaction(ctx, func(_ context.Context, s *flightpool.SessionHandle) error { return w.body(s, tx) })
		w.note(tx.how, tx.err)
	case 5, 6:
		var tx *sceneTx
		err := w.p.InTx(ctx, flightpool.TxOptions{}, func(_ context.Context, t *flightpool.Tx) error {
			if tx != nil {
				tx.how, tx.err = "repeated", flightpool.ErrTxAborted
			}
			tx = &sceneTx{how: "InTx"}
			w.txs = append(w.txs, tx)
			return w.body(t, tx)
		})
		if tx != nil {
			tx.err = err
		}
		w.note("InTx", err)
	default:
		w.byHand(ctx, s)
	}
}

func (w *scene) byHand(ctx context.Context, s *flightpool.SessionHandle) {
	err := s.BeginTransaction(ctx)
	w.note("BeginTransaction", err)
	if err != nil {
		return
	}
	tx := &sceneTx{how: "Close"}
	w.txs = append(w.txs, tx)
	_ = w.body(s, tx)
	if w.rng.IntN(4) == 0 {
		time.Sleep([]time.Duration{5 * time.Second, 31 * time.Second, 16 * time.Minute}[w.rng.IntN(3)])
		w.note("pause", nil)
	}
	ctx, stop := w.ctx()
	defer stop()
	end, how := s.Commit, "Commit"
	if w.rng.IntN(3) == 0 {
		end, how = s.Rollback, "Rollback"
	}
	tx.how, tx.err = how, end(ctx)
	w.note(how, tx.err)
	if sceneUnsent(tx.err) {
		tx.err = end(w.r.Context())
		w.note(how, tx.err)
	}
}

func (w *scene) stored(judge *flightpool.FlightSQLPool) map[int]int {
	rows, err := judge.Query(w.r.Context(), "SELECT * FROM "+sceneTable(w.profile()))
	require.NoError(w.r, err)
	out := map[int]int{}
	defer rows.Release()
	for rows.Next() {
		for _, v := range rows.RecordBatch().Column(0).(*array.Int64).Int64Values() {
			out[int(v)]++
		}
	}
	require.NoError(w.r, rows.Err())
	return out
}

func (w *scene) judge(stored map[int]int) {
	swan := w.profile().UnknownTxOK
	for _, c := range w.changes {
		for _, v := range c.values {
			n := stored[v]
			say := func(want string, err error) {
				w.wrong = append(w.wrong, fmt.Sprintf("%d (%s) is stored %d times, want %s: %v", v, c.what, n, want, err))
			}
			safe := c.err != nil && (flightpool.SafeToRetry(c.err) || flightpool.IsConflict(c.err))
			tx := c.tx
			if tx == nil {
				switch {
				case c.err == nil && n != 1:
					say("1", nil)
				case safe && n != 0:
					say("0: safe to repeat", c.err)
				case n > 1:
					say("1 at most", c.err)
				}
				continue
			}
			lost := errors.Is(tx.err, flightpool.ErrSessionLost) && swan
			switch {
			case n > 1:
				say("1 at most", tx.err)
			case (tx.how == "Commit" || tx.how == "Rollback") && sceneUnsent(tx.err) && swan:
			case sceneUnsent(c.err) && n != 0:
				say("0: it was not sent", c.err)
			case c.undone && n != 0:
				say("0: RollbackTo has undone it", tx.err)
			case c.undone, tx.how == "Close":
			case tx.err == nil && tx.how != "Rollback" && tx.lost != nil:
				say("no success: RollbackTo failed", tx.lost)
			case tx.err == nil && tx.how != "Rollback" && c.err == nil && n != 1:
				say("1 by "+tx.how, nil)
			case tx.err == nil && tx.how != "Rollback" && c.err != nil && !sceneUnsent(c.err):
				say("no success of the transaction", c.err)
			case tx.err == nil && tx.how == "Rollback" && n != 0:
				say("0 by Rollback", nil)
			case tx.err != nil && n != 0 && (flightpool.SafeToRetry(tx.err) || flightpool.IsConflict(tx.err)):
				say("0: safe to repeat", tx.err)
			case tx.err != nil && n != 0 && !lost && !errors.Is(tx.err, flightpool.ErrCommitUnknown):
				say("0 by "+tx.how, tx.err)
			}
		}
	}
}

// borrowers looks at what the next borrowers of every connection see.
func (w *scene) borrowers() {
	if key := w.profile().SessionKey; key == testserver.ByCall || key == testserver.ByHeader {
		return
	}
	var all []*flightpool.SessionHandle
	for range 3 {
		ctx, stop := context.WithTimeout(w.r.Context(), time.Minute)
		defer stop()
		s, err := w.p.AcquireSession(ctx)
		if err != nil {
			w.wrong = append(w.wrong, fmt.Sprintf("no connection in the end: %v", err))
			break
		}
		all = append(all, s)
		for _, sql := range []string{"SELECT current_setting('colour')", "SELECT count(*) FROM temp.main.mine", "SELECT current_database(), current_schema()"} {
			rows, err := s.Query(ctx, sql)
			if err != nil {
				if f := backend.FaultIn(err); f != flightpool.FaultStatement && (f != flightpool.FaultAuth || w.renewals == nil) {
					w.wrong = append(w.wrong, fmt.Sprintf("%s in the end: %v", sql, err))
				}
				continue
			}
			got := firstRow(rows)
			if got != "(null)" && got != "memory main" {
				w.wrong = append(w.wrong, fmt.Sprintf("the next borrower sees by %s: %q", sql, got))
			}
		}
	}
	for _, s := range all {
		_ = s.Close()
	}
}

func firstRow(rows *flightpool.QueryResult) string {
	defer rows.Release()
	var out []string
	for rows.Next() {
		for _, c := range rows.RecordBatch().Columns() {
			if c.Len() > 0 {
				out = append(out, strings.Clone(c.ValueStr(0)))
			}
		}
	}
	if rows.Err() != nil {
		return rows.Err().Error()
	}
	return strings.Join(out, " ")
}

func (w *scene) tokens(cfg *flightpool.Config) {
	if w.rng.IntN(2) == 0 {
		w.renewals.begin(w.r.server)
	}
	cfg.Auth = flightpool.TokenAuth(w.renewals.source)
}

func playScene(t *testing.T, seed uint64, kind string, profile testserver.Profile) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // a repeatable sequence
		profile.JanitorEvery = 0
		w := &scene{rng: rng}
		opts := testserver.Options{Profile: profile, Listen: testserver.InMemory}
		withTokens := kind != "new" && profile.SessionKey != testserver.ByBearer && rng.IntN(2) == 0
		if withTokens {
			w.renewals = newRenewals(seed)
			opts.Tokens = append(w.renewals.all, "judge")
			opts.GRPC = w.renewals.options()
		}
		s, err := testserver.Start(opts)
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		w.r = rig{t, s}
		judge := w.r.pool("native", func(cfg *flightpool.Config) {
			if withTokens {
				cfg.Auth = flightpool.BearerAuth("judge")
			}
		})
		w.r.update(judge, "CREATE TABLE "+sceneTable(profile)+" (v BIGINT)")
		w.r.update(judge, "CREATE SCHEMA other")
		w.p, err = w.r.tryPool(kind, func(cfg *flightpool.Config) {
			cfg.MaxSize, cfg.MaxLifetime, cfg.HealthCheck.Interval = 3, -1, -1
			if withTokens {
				w.tokens(cfg)
			}
			if rng.IntN(3) == 0 && kind == "native" {
				cfg.DialOptions = []grpc.DialOption{grpc.WithUserAgent("test")} // gRPC's own client
				if rng.IntN(2) == 0 {
					cfg.DialOptions = append(cfg.DialOptions, grpc.WithAuthority("other"))
				}
			}
			if rng.IntN(3) == 0 {
				cfg.OnConnect = func(ctx context.Context, s *flightpool.SessionHandle) error {
					_, err := s.Update(ctx, "SET taste = 'sweet'")
					return err
				}
			}
			if rng.IntN(3) == 0 && kind == "native" {
				cfg.StatementCache = 4
			}
		})
		if err != nil {
			return // without a token, or a session to connect
		}
		defer func() {
			ctx, stop := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Minute)
			defer stop()
			_ = w.p.Close(ctx)
		}()
		h, err := w.p.AcquireSession(t.Context())
		if err != nil {
			return
		}
		for range 1 + rng.IntN(6) {
			w.one(h)
		}
		w.note("Close", h.Close())
		time.Sleep(2 * time.Minute)
		s.Faults().Clear()
		s.Faults().ThawConns()
		time.Sleep(time.Minute)
		w.borrowers()
		s.Faults().EvictSessions()
		time.Sleep(time.Minute)
		w.judge(w.stored(judge))
		if len(w.wrong) > 0 {
			slices.Sort(w.wrong)
			t.Errorf("seed %d, %s, %s: %s\n%s", seed, kind, profile.Name, strings.Join(w.wrong, "\n"), strings.Join(w.steps, "\n"))
		}
		s.Faults().EvictSessions()
		if os.Getenv("PROVE_SHOW") != "" {
			t.Logf("seed %d, %s, %s:\n%s", seed, kind, profile.Name, strings.Join(w.steps, "\n"))
		}
	})
}

// Whatever a server or a proxy answers at any RPC, on any kind of server and by any backend: what was
// said of a change, alone, in a batch or in a transaction, holds, and nothing is left for the
// next borrower. PROVE_SEED draws others, PROVE_SCENES more.
func TestEveryWordOnAChangeHoldsWhateverAProxyAnswers(t *testing.T) {
	seed, _ := strconv.ParseUint(os.Getenv("PROVE_SEED"), 10, 64)
	many, _ := strconv.Atoi(os.Getenv("PROVE_SCENES"))
	if many == 0 {
		many = 3
	}
	profiles := []testserver.Profile{testserver.Strict(), testserver.SwanLake(), testserver.GizmoSQL(), testserver.Dremio(), doris(), testserver.ClickHouse(), noSessions()}
	for i := range uint64(many) { //nolint:gosec // small
		for k, profile := range profiles {
			kind := kinds[(i+uint64(k))%3]
			if kind == "new" && profile.SessionKey == testserver.ByBearer {
				kind = "open"
			}
			t.Run(fmt.Sprintf("%s %s %d", kind, profile.Name, seed+i), func(t *testing.T) { playScene(t, seed+i, kind, profile) })
		}
	}
}
