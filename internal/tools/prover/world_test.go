package prover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/session"
	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/script"
)

// Bounds in virtual time.
const (
	longCall   = 2 * time.Hour         // deadline of a call that has none of its own
	driverIdle = 29 * time.Minute      // after which the connection of ADBC's driver rests, and dials again
	overtime   = 50 * time.Millisecond // a call may outlast its deadline by this
	tokenLife  = 10 * time.Minute
	shortLife  = time.Minute      // of a token, where the source gives no longer one
	closing    = 10 * time.Minute // for Close of the pool
	aftermath  = 30 * time.Hour   // everything of the server's has expired by then
	stepPause  = 2 * time.Second  // within what the server runs as several statements
)

// world is one run of a program.
type world struct {
	t                 *testing.T
	program           program
	profile           testserver.Profile
	calm              bool
	late              bool          // a call has ended with its deadline, while its statement may run on
	lies              bool          // what was done may be answered with a status
	took              time.Duration // by the call that has ended last
	settled           bool          // what goes wrong is over: calls of sessions that begin now fail no more
	answers           *answers
	db                *script.Engine
	srv               *testserver.Server
	pool, second      *flightpool.FlightSQLPool // the second is another user's
	home              string                    // the schema of the tables
	table, decoy, hot string
	clashes           map[int64]*token // by what they set the one row to that they clash about
	replaced          []*replacement
	bound             int // calls with parameters
	actors            map[string]*actor
	tokens            map[int64]*token
	timers            []*time.Timer
	closers           []func() error // what is closed after the pool
	tokenNo, asides   int
	shades, painters  int                                // statements that change the setting of the whole server; who has and has not taken it back
	unpainted         bool                               // who has is lost
	strayed           bool                               // a connection that was lost to a redial of its driver may have left a transaction
	asked             map[*flightpool.FlightSQLPool]bool // for a setting
	source            source                             // of tokens
	sourceWorse       bool                               // it has not always been well
	looks             int
	evicts            bool           // the server takes sessions away
	parallel          bool           // steps are carried out beside others
	redial            redial         // of the driver behind adbcpool.New
	refusals          *refusals      // by REFUSED_STREAM; nil where the program has none
	headers           *headers       // of calls
	turn              turn           // of the steps that are carried out beside each other
	running           sync.WaitGroup // steps beside the others
	fed               sync.Mutex     // orders feeding's Add and Wait
	feeding           sync.WaitGroup // readers that have begun and are not let go

	mu     sync.Mutex // guards what follows
	broken []violation
	trace  []string // what the calls said
	failed error    // of the call that has failed last
}

// violation is a promise that was broken. Its kind is the same in a smaller
// program that breaks the same promise.
type violation struct{ kind, detail string }

func (v violation) String() string { return v.kind + ": " + v.detail }

func (w *world) breaks(kind, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = append(w.broken, violation{kind, fmt.Sprintf(format, args...)})
}

// actor has a session at a time.
type actor struct {
	handle   *flightpool.SessionHandle
	prepared *flightpool.PreparedQuery
	decoys   []*flightpool.PreparedQuery
	tx       *tx
	dirty    map[string]bool // settings, temporary tables and USE that it may have left
	shaken   bool            // errors are no surprise any more
	home     int             // session of the server's in which it has something to lose, 0 if nothing
	settled  bool            // it was acquired when all that goes wrong was over
	heard    bool            // a statement of it has been answered
	done     chan struct{}   // closed once its step beside the others is done, nil for none
	held     *heldResult     // a result that stays open from one step to others
	since    time.Time       // of the session
	evicted  int             // sessions that the server had ended by then
	used     time.Time       // start of its last call of which the server may know
	refused  bool            // a commit was refused: one Rollback more is no mistake
}

// tx is a transaction as its actor knows it.
type tx struct {
	failed  bool   // something of it was sent and has failed
	told    bool   // a statement of it has, as its actor was told
	clashed bool   // its commit may be refused
	aside   bool   // it has changed another catalog
	saves   []save // its savepoints, the last one innermost
	ending  bool   // its commit is under way
	ended   outcome
}

// outcome is what has become of rows.
type outcome uint8

const (
	open     outcome = iota // not decided: not stored at the end
	stored                  // once
	never                   // not at all
	either                  // not known, but not twice
	together                // all of the transaction's, or none
)

// token is a row that was to be stored.
type token struct {
	tx        *tx // nil: by itself
	alone     outcome
	step      string
	elsewhere bool // in a table of its step's own
}

// Connections live for a few calls here: large buffers and new stacks for each
// call cost more than the calls.
var (
	cheapServer = []grpc.ServerOption{grpc.NumStreamWorkers(2), grpc.ReadBufferSize(bufferSize), grpc.WriteBufferSize(bufferSize)}
	cheapClient = []grpc.DialOption{grpc.WithReadBufferSize(bufferSize), grpc.WithWriteBufferSize(bufferSize)}
)

const bufferSize = 4 << 10

// newWorld starts a server and a pool. It returns an error when New does.
func newWorld(t *testing.T, p program) (*world, error) {
	profile, err := profileOf(p.profile)
	if err != nil {
		return nil, err
	}
	w := &world{t: t, program: p, profile: profile, db: script.New(), actors: map[string]*actor{}, asked: map[*flightpool.FlightSQLPool]bool{}, tokens: map[int64]*token{}, clashes: map[int64]*token{}, calm: true, answers: &answers{}, headers: &headers{seen: map[string]bool{}}, turn: make(turn, 1)}
	for _, s := range p.steps {
		w.evicts = w.evicts || s.verb == "evict" || s.arg(0) == "evict" || s.verb == "restart" || s.arg(0) == "restart"
		w.parallel = w.parallel || s.beside || strings.HasPrefix(s.verb, "keep") || s.kept // whose connection is in use when the call is over
		switch s.verb {
		case "fault", "kill", "goaway", "evict", "expire", "restart", "redial", "renew", "limit":
			w.calm = false
		case "refuse":
			w.calm, w.refusals = false, &refusals{}
		case "answer":
			w.calm = false
			w.lies = w.lies || s.arg(2) == "after" && s.arg(0) != codes.OK.String()
		}
	}
	w.answers.headers = w.headers
	w.evicts = w.evicts || p.backend == "new" && !w.calm // its driver dials again
	opts := testserver.Options{Profile: profile, Engine: w.db, Listen: testserver.InMemory, GRPC: slices.Concat(cheapServer, w.answers.options())}
	cfg := flightpool.Config{MaxSize: p.max, MinIdle: p.min}
	cfg.HealthCheck.Interval, cfg.StatementCache = p.check, p.keeps
	switch p.reset {
	case "discard":
		cfg.OnReturn = flightpool.ResetDiscard
	case "none":
		cfg.OnReturn = flightpool.ResetNone
	case "sql":
		cfg.OnReturn = flightpool.ResetSQL(w.leadBack()...)
	}
	if cfg.MinIdle == 0 {
		cfg.MinIdle = -1
	}
	switch p.auth {
	case "basic":
		opts.Users = map[string]string{"u": "p"}
		cfg.Auth = flightpool.BasicAuth("u", "p")
	case "token":
		opts.Tokens = tokensOf()
		cfg.Auth = flightpool.TokenAuth(w.nextToken)
	}
	if profile.SessionKey == testserver.ByHeader {
		cfg.SessionHeader = profile.KeyName
	}
	if w.srv, err = testserver.Start(opts); err != nil {
		return nil, err
	}
	if w.refusals != nil {
		w.refusals.dial = w.srv.Dial
	}
	w.home = "memory.main"
	if profile.AppendTo != "" {
		w.home = profile.AppendTo // of a name with three parts it takes the first two
	}
	w.table, w.decoy, w.hot = w.home+".log", w.home+".decoy", w.home+".hot"
	for _, name := range []string{w.table, w.decoy} {
		w.admin("CREATE TABLE " + name + " (k BIGINT)")
	}
	for _, s := range p.steps {
		if s.verb == "alter" || s.verb == "prealter" {
			w.admin("CREATE TABLE IF NOT EXISTS " + w.altered(s.num(0)) + " (k BIGINT)")
			w.admin("INSERT INTO " + w.altered(s.num(0)) + " VALUES (0)")
		}
		if s.verb == "each" {
			w.admin("CREATE TABLE IF NOT EXISTS " + w.eachOf(s.num(0)) + " (k BIGINT)")
			for k := s.num(0); k < s.num(0)+s.num(1); k++ {
				w.admin(fmt.Sprintf("INSERT INTO %s VALUES (%d)", w.eachOf(s.num(0)), -k))
			}
		}
	}
	w.db.PauseBetweenSteps(stepPause)
	w.admin("CREATE TABLE " + w.hot + " (v BIGINT)")
	w.admin("CREATE TABLE memory.side (v BIGINT)")
	w.admin("INSERT INTO " + w.hot + " VALUES (0)")
	w.admin("CREATE SCHEMA memory.other")
	w.admin("CREATE SCHEMA " + preparedPlace)
	if p.prepare != "" {
		cfg.OnConnect = w.onConnect
	}
	w.db.ServerSetting(shade, operators, byDefault)
	ctx := session.ShareSettings(w.t.Context())
	if w.pool, err = w.newPool(ctx, cfg); err == nil && p.users > 1 {
		w.second, err = w.newPool(ctx, cfg)
	}
	return w, err
}

// nextToken gives a new token, which the server knows for its life.
func (w *world) nextToken(ctx context.Context) (string, time.Time, error) {
	w.mu.Lock()
	does := w.source
	w.source.fails, w.source.short = max(0, w.source.fails-1), max(0, w.source.short-1)
	w.mu.Unlock()
	life, err := does.life(ctx)
	if err != nil {
		return "", time.Time{}, err
	}
	return w.newToken(life), time.Now().Add(life), nil
}

// newToken is one that lives so long.
func (w *world) newToken(life time.Duration) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := "token-" + strconv.Itoa(w.tokenNo)
	w.tokenNo++
	w.timers = append(w.timers, time.AfterFunc(life, func() { w.srv.Faults().ExpireToken(name) }))
	return name
}

// renewed is a token that the server gives by itself. Where the others are gone, those who have got none
// find out soon.
func (w *world) renewed(gone bool) string {
	until := w.tokenNumber()
	if gone {
		w.mu.Lock()
		w.timers = append(w.timers, time.AfterFunc(time.Second, func() {
			for i := range until {
				w.srv.Faults().ExpireToken("token-" + strconv.Itoa(i))
			}
		}))
		w.mu.Unlock()
	}
	return "Bearer " + w.newToken(tokenLife)
}

func (w *world) tokenNumber() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tokenNo
}

// lastToken is the one that was given last.
func (w *world) lastToken() string {
	return "token-" + strconv.Itoa(w.tokenNumber()-1)
}

// admin works on the database beside the server.
func (w *world) admin(sql string) [][]int64 {
	rows, err := w.tryAdmin(sql)
	if err != nil {
		panic(fmt.Errorf("%s: %w", sql, err))
	}
	return rows
}

func (w *world) tryAdmin(sql string) ([][]int64, error) {
	s, err := w.db.Open(w.t.Context())
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }()
	rows, err := s.Query(w.t.Context(), sql, nil)
	if err != nil {
		return nil, err
	}
	defer rows.Release()
	var all [][]int64
	for rows.Next() {
		all = append(all, numbers(rows.RecordBatch())...)
	}
	return all, rows.Err()
}

// numbers are the rows of a batch of BIGINT.
func numbers(b arrow.RecordBatch) [][]int64 {
	rows := make([][]int64, b.NumRows())
	for _, col := range b.Columns() {
		if c, ok := col.(*array.Int64); ok {
			for i := range rows {
				rows[i] = append(rows[i], c.Value(i))
			}
		}
	}
	return rows
}

// batch is one column of numbers from first on.
func batch(first, n int64) arrow.RecordBatch { return columns(first, n, 1) }

// columns are rows of numbers from first on, each multiplied by the factor of its column.
func columns(first, n int64, factors ...int64) arrow.RecordBatch {
	var fields []arrow.Field
	for i := range factors {
		fields = append(fields, arrow.Field{Name: strconv.Itoa(i + 1), Type: arrow.PrimitiveTypes.Int64})
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	defer b.Release()
	for c, factor := range factors {
		col, _ := b.Field(c).(*array.Int64Builder)
		for i := range n {
			col.Append(factor * (first + i))
		}
	}
	return b.NewRecordBatch()
}

// errPanicked stands for a panic of the program's own that has come back.
var errPanicked = errors.New("the program's panic")

const programPanic = "a panic of the program"

// contextOf is the context of a step's call, and after how long it ends.
func (w *world) contextOf(s step) (context.Context, time.Duration, context.CancelFunc) {
	limit := longCall
	switch {
	case s.within > 0:
		limit = s.within
	case s.cut > 0:
		ctx, stop := context.WithCancelCause(w.t.Context())
		timer := time.AfterFunc(s.cut, func() { stop(w.causeOf(s)) })
		return ctx, s.cut, func() { timer.Stop(); stop(nil) }
	}
	ctx, stop := context.WithTimeoutCause(w.t.Context(), limit, w.causeOf(s))
	if s.limit > 0 {
		limit = min(limit, s.limit)
	}
	return ctx, limit, stop
}

// call makes one call and holds it to its deadline. Steps beside it have their turn
// meanwhile.
func (w *world) call(s step, f func(ctx context.Context) error) (err error) {
	began := time.Now()
	w.turn.Unlock()
	defer func() {
		w.turn.Lock()
		w.took = time.Since(began)
		if a := w.actors[s.who]; a != nil && !unsent(err) {
			a.used = began
			a.heard = a.heard || err == nil && isStatement(s.verb)
		}
	}()
	return w.timed(s, f)
}

// timed is call without the turn.
func (w *world) timed(s step, f func(ctx context.Context) error) (err error) {
	ctx, limit, stop := w.contextOf(s)
	defer stop()
	began := time.Now()
	defer func() {
		if fault := recover(); fault != nil {
			if fault != programPanic {
				panic(fault)
			}
			err = errPanicked
		}
		took := time.Since(began)
		w.mu.Lock()
		if err != nil && err != errPanicked { //nolint:errorlint // it is itself
			w.failed = err
		}
		w.trace = append(w.trace, fmt.Sprintf("%s: %v, after %v", s, err, took))
		w.mu.Unlock()
		if s.caused != "" && err != nil {
			err = own{err}
		}
		if took > limit+overtime {
			w.breaks("late return", "%q took %v", s, took)
		}
	}()
	return f(ctx)
}

// refusedBefore reports whether nothing of a call can have been done: it was
// not sent, or the server has refused it.
func (w *world) refusedBefore(err error) bool {
	var e *flightpool.Error
	if !errors.As(err, &e) {
		return errors.Is(err, flightpool.ErrClosed)
	}
	if flightpool.SafeToRetry(err) || e.Unsent {
		return true
	}
	if e.Partial || e.Stage == backend.StageFetch && namesItsReason(status.Code(e.Err)) {
		return false // some servers run a change before its rows are asked for, and refuse those by a word that others have for the change
	}
	if w.lies {
		return e.Fault == flightpool.FaultUsage
	}
	switch e.Fault {
	case flightpool.FaultUsage, flightpool.FaultStatement, flightpool.FaultUnsupported, flightpool.FaultLimit, flightpool.FaultAuth:
		return true
	default:
		return false
	}
}

// unsent reports whether the server never heard of a call.
func unsent(err error) bool {
	var e *flightpool.Error
	return errors.As(err, &e) && e.Unsent
}
