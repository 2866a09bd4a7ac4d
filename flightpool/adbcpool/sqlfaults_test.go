package adbcpool

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/driverapi"
	"github.com/flightpool/flightpool/testserver"
)

// sqlPlay is one use of a *sql.DB, and what its calls have said.
type sqlPlay struct {
	r      rig
	db     *sql.DB
	table  string
	values []*sqlSaid
	tx     *sqlTx
	txs    []*sqlTx
	broken []string
}

// sqlSaid is what was said of a value that was to be stored.
type sqlSaid struct {
	value int
	err   error
}

type sqlTx struct {
	*sql.Tx
	values []*sqlSaid
	faults []error // of statements that store nothing
	end    string
	err    error
}

const sqlPatience = time.Second

func (p *sqlPlay) wrong(format string, args ...any) {
	p.broken = append(p.broken, fmt.Sprintf(format, args...))
}

// in runs a call within its context.
func (p *sqlPlay) in(name string, limit time.Duration, call func(ctx context.Context) error) error {
	ctx, stop := context.WithTimeout(p.r.Context(), sqlPatience)
	defer stop()
	began := time.Now()
	err := call(ctx)
	if took := time.Since(began); took > limit {
		p.wrong("%s took %s: %v", name, took, err)
	}
	if err != nil && (strings.Contains(err.Error(), "%!") || err.Error() == "") {
		p.wrong("%s fails with %q", name, err)
	}
	return err
}

const callLimit = sqlPatience + 50*time.Millisecond

// insert stores a new value by run.
func (p *sqlPlay) insert(name string, run func(ctx context.Context, v int) error) {
	s := &sqlSaid{value: len(p.values) + 1}
	p.values = append(p.values, s)
	s.err = p.in(name, callLimit, func(ctx context.Context) error { return run(ctx, s.value) })
	if p.tx != nil {
		p.tx.values = append(p.tx.values, s)
	}
}

type sqlOn interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	QueryRowContext(context.Context, string, ...any) *sql.Row
	PrepareContext(context.Context, string) (*sql.Stmt, error)
}

func (p *sqlPlay) on() sqlOn {
	if p.tx != nil {
		return p.tx
	}
	return p.db
}

func (p *sqlPlay) exec() {
	p.insert("Exec", func(ctx context.Context, v int) error {
		done, err := p.on().ExecContext(ctx, fmt.Sprintf("INSERT INTO %s VALUES (%d)", p.table, v))
		return p.affects(done, err)
	})
}

func (p *sqlPlay) affects(done sql.Result, err error) error {
	if err != nil {
		return err
	}
	if n, err := done.RowsAffected(); err == nil && n != 1 && !p.r.server.Profile().ZeroCounts {
		p.wrong("%d rows affected", n)
	}
	return nil
}

func (p *sqlPlay) execArgs() {
	p.insert("Exec with arguments", func(ctx context.Context, v int) error {
		done, err := p.on().ExecContext(ctx, "INSERT INTO "+p.table+" VALUES (?)", v)
		return p.affects(done, err)
	})
}

// other notes the failure of what stores nothing.
func (p *sqlPlay) other(err error) {
	if err != nil && p.tx != nil {
		p.tx.faults = append(p.tx.faults, err)
	}
}

func (p *sqlPlay) query() { p.read(3000, -1) }
func (p *sqlPlay) some()  { p.read(3000, 5) }
func (p *sqlPlay) read(rows, upTo int) {
	p.other(p.in("Query", 2*sqlPatience, func(ctx context.Context) error {
		got, err := p.on().QueryContext(ctx, fmt.Sprintf("SELECT * FROM generate(%d, 500)", rows))
		if err != nil {
			return err
		}
		n := 0
		for n != upTo && got.Next() {
			n++
		}
		err = errors.Join(got.Err(), got.Close())
		if err == nil && n != rows && n != upTo {
			p.wrong("%d rows of %d and no error", n, rows)
		}
		return err
	}))
}

func (p *sqlPlay) row() {
	p.other(p.in("QueryRow", callLimit, func(ctx context.Context) error {
		var a, b int
		err := p.on().QueryRowContext(ctx, "SELECT 1, ?", 7).Scan(&a, &b)
		if err == nil && (a != 1 || b != 7) {
			p.wrong("%d, %d", a, b)
		}
		if errors.Is(err, sql.ErrNoRows) {
			p.wrong("no rows: %v", err)
		}
		return err
	}))
}

func (p *sqlPlay) prepared() {
	var stmt *sql.Stmt
	err := p.in("Prepare", callLimit, func(ctx context.Context) (err error) {
		stmt, err = p.on().PrepareContext(ctx, "INSERT INTO "+p.table+" VALUES (?)")
		return err
	})
	if err != nil {
		p.other(err)
		return
	}
	for range 2 {
		p.insert("Stmt.Exec", func(ctx context.Context, v int) error {
			done, err := stmt.ExecContext(ctx, v)
			return p.affects(done, err)
		})
	}
	_ = p.in("Stmt.Close", 50*time.Millisecond, func(context.Context) error { return stmt.Close() })
}

func (p *sqlPlay) ping() {
	_ = p.in("Ping", callLimit, p.db.PingContext)
}

func (p *sqlPlay) begin() {
	p.beginOn(p.db)
}

func (p *sqlPlay) beginOn(db interface {
	BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error)
}) {
	_ = p.in("Begin", callLimit, func(context.Context) error {
		tx, err := p.beginWithin(db)
		if err == nil {
			p.tx = &sqlTx{Tx: tx}
			p.txs = append(p.txs, p.tx)
		}
		return err
	})
}

func (p *sqlPlay) commit()   { p.end("Commit") }
func (p *sqlPlay) rollback() { p.end("Rollback") }
func (p *sqlPlay) end(how string) {
	tx := p.tx
	if tx == nil {
		return
	}
	p.tx = nil
	tx.end = how
	tx.err = p.in(how, driverapi.NoCtxTimeout+50*time.Millisecond, func(context.Context) error {
		if how == "Commit" {
			return tx.Commit()
		}
		return tx.Rollback()
	})
}

// beginWithin begins a transaction that lasts longer than its begin may take.
func (p *sqlPlay) beginWithin(db interface {
	BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error)
}) (*sql.Tx, error) {
	ctx, stop := context.WithTimeout(p.r.Context(), 10*sqlPatience)
	p.r.Cleanup(stop)
	short, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(sqlPatience, func() { cancel(context.DeadlineExceeded) })
	defer late.Stop()
	return db.BeginTx(short, nil)
}

// onConn is a db.Conn with a transaction in it.
func (p *sqlPlay) onConn() {
	var cn *sql.Conn
	if p.in("Conn", callLimit, func(ctx context.Context) (err error) { cn, err = p.db.Conn(ctx); return err }) != nil {
		return
	}
	p.insert("Conn.Exec", func(ctx context.Context, v int) error {
		done, err := cn.ExecContext(ctx, "INSERT INTO "+p.table+" VALUES (?)", v)
		return p.affects(done, err)
	})
	p.beginOn(cn)
	if p.tx != nil {
		p.exec()
		p.commit()
	}
	p.insert("Conn.Exec", func(ctx context.Context, v int) error {
		done, err := cn.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s VALUES (%d)", p.table, v))
		return p.affects(done, err)
	})
	_ = p.in("Conn.Close", driverapi.NoCtxTimeout, func(context.Context) error { return cn.Close() })
}

type sqlStep = func(*sqlPlay)

func steps(s ...sqlStep) []sqlStep { return s }

var sqlPrograms = map[string][]sqlStep{
	"exec":                      steps((*sqlPlay).exec, (*sqlPlay).execArgs, (*sqlPlay).exec),
	"reads":                     steps((*sqlPlay).query, (*sqlPlay).row, (*sqlPlay).some, (*sqlPlay).exec),
	"prepared":                  steps((*sqlPlay).prepared, (*sqlPlay).exec),
	"transaction":               steps((*sqlPlay).begin, (*sqlPlay).exec, (*sqlPlay).execArgs, (*sqlPlay).commit, (*sqlPlay).exec),
	"transaction undone":        steps((*sqlPlay).begin, (*sqlPlay).exec, (*sqlPlay).rollback, (*sqlPlay).exec),
	"reads in transaction":      steps((*sqlPlay).begin, (*sqlPlay).exec, (*sqlPlay).some, (*sqlPlay).row, (*sqlPlay).exec, (*sqlPlay).commit, (*sqlPlay).exec),
	"prepared in a transaction": steps((*sqlPlay).begin, (*sqlPlay).prepared, (*sqlPlay).commit, (*sqlPlay).exec),
	"a Conn":                    steps((*sqlPlay).onConn, (*sqlPlay).ping, (*sqlPlay).exec),
}

// sqlPoints are the moments of the server, and sqlEffects what happens then.
var sqlPoints = []testserver.Point{
	testserver.OnConnect, testserver.OnSession, testserver.OnStatement, testserver.OnBatch,
	testserver.OnGetFlightInfo, testserver.OnDoGet, testserver.OnDoPut, testserver.OnBegin, testserver.OnEnd, testserver.OnPrepare,
	"ClosePreparedStatement", testserver.OnCancel, testserver.OnCloseSession, "GetSessionOptions", "SetSessionOptions",
}

var sqlEffects = map[string]testserver.Effect{
	"kill": testserver.Kill(), "freeze": testserver.Freeze(), "hang": testserver.Hang(), "goaway": testserver.GoAway(), "evict": testserver.Evict(),
	"unavailable": testserver.Fail(codes.Unavailable, "gone"), "internal": testserver.Fail(codes.Internal, "broken"),
	"invalid": testserver.Fail(codes.InvalidArgument, "refused"), "late": testserver.Delay(1500 * time.Millisecond),
	"unauthenticated": testserver.Fail(codes.Unauthenticated, "who"), "cancelled": testserver.Fail(codes.Canceled, "cancelled"),
	"deadline": testserver.Fail(codes.DeadlineExceeded, "too late"), "exhausted": testserver.Fail(codes.ResourceExhausted, "full"),
	"notfound": testserver.Fail(codes.NotFound, "no such ticket"), "aborted": testserver.Fail(codes.Aborted, "conflict"),
}

// proxyEffects are answers of proxies in place of the server's.
var proxyEffects = map[string]testserver.Effect{
	"503": testserver.Fail(codes.Unavailable, page("503 (Service Unavailable)")), "404": testserver.Fail(codes.Unimplemented, page("404 (Not Found)")),
	"401": testserver.Fail(codes.Unauthenticated, page("401 (Unauthorized)")), "403": testserver.Fail(codes.PermissionDenied, page("403 (Forbidden)")),
	"reset": testserver.Fail(codes.Internal, "stream terminated by RST_STREAM with error code: PROTOCOL_ERROR"), "refused": testserver.Fail(codes.Unavailable, "stream terminated by RST_STREAM with error code: REFUSED_STREAM"),
	"nothing said": testserver.Fail(codes.Unknown, ""), "data loss": testserver.Fail(codes.DataLoss, ""),
}

func effectOf(name string) testserver.Effect {
	if effect, ok := proxyEffects[name]; ok {
		return effect
	}
	return sqlEffects[name]
}

// page is gRPC's text of a page that a proxy has put in place of an answer.
func page(status string) string {
	return "unexpected HTTP status code received from server: " + status + "; transport: received unexpected content-type \"text/html\""
}

type sqlFault struct {
	on     testserver.Point
	after  bool
	skip   int
	effect string
}

// performSQL runs a program with a fault, and says what is wrong, and whether the
// fault has struck.
func performSQL(t *testing.T, kind string, profile testserver.Profile, program string, f sqlFault) (broken []string, struck bool) {
	synctest.Test(t, func(t *testing.T) {
		s, err := testserver.Start(testserver.Options{Profile: profile, Listen: testserver.InMemory})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		r := rig{t, s}
		judge := r.pool("native")
		r.update(judge, "CREATE TABLE "+tableOf(profile)+" (v BIGINT)")
		pool, err := r.tryPool(kind)
		require.NoError(t, err)
		p := &sqlPlay{r: r, db: OpenDB(pool), table: tableOf(profile)}
		var set *testserver.SetFault
		if f.effect != "" {
			set = s.Faults().Set(testserver.Fault{On: f.on, After: f.after, Skip: f.skip, Times: 1, Do: effectOf(f.effect)})
		}
		for _, step := range sqlPrograms[program] {
			step(p)
		}
		_ = p.in("DB.Close", driverapi.NoCtxTimeout, func(context.Context) error { return p.db.Close() })
		_ = p.in("Pool.Close", 10*time.Second, func(ctx context.Context) error { return pool.Close(ctx) })
		if set != nil {
			struck = set.Fired() > 0
			set.Clear()
			s.Faults().ThawConns()
		}
		time.Sleep(31 * time.Minute) // SwanLake's sessions end after 15 minutes, in a round of its janitor
		synctest.Wait()
		stored := map[int]int{}
		rows, err := judge.Query(r.Context(), "SELECT * FROM "+tableOf(profile))
		require.NoError(t, err)
		for _, v := range r.values(rows) {
			n, err := strconv.Atoi(v)
			require.NoError(t, err)
			stored[n]++
		}
		rows.Release()
		p.judge(stored)
		if f.effect == "" {
			p.allWell()
		}
		if profile.SessionKey == testserver.ByBearer { // a session outlives its transport there
			s.Faults().EvictSessions()
			synctest.Wait()
		}
		if now := s.Ledger().Snapshot(); now.Transactions > 0 || now.Conns > 2 {
			p.wrong("left on the server: %v", now)
		}
		broken = p.broken
	})
	return broken, struck
}

// allWell is for programs without a fault.
func (p *sqlPlay) allWell() {
	for _, s := range p.values {
		if s.err != nil {
			p.wrong("%d: %v", s.value, s.err)
		}
	}
	for _, tx := range p.txs {
		if tx.err != nil {
			p.wrong("%s: %v", tx.end, tx.err)
		}
	}
}

func (p *sqlPlay) judge(stored map[int]int) {
	check := func(s *sqlSaid, least, most int, why string) {
		if n := stored[s.value]; n < least || n > most {
			p.wrong("%d is stored %d times: %s (%v)", s.value, n, why, s.err)
		}
	}
	inTx := map[*sqlSaid]bool{}
	for _, tx := range p.txs {
		failed := len(tx.faults)
		all, some := true, false
		for _, s := range tx.values {
			inTx[s] = true
			if s.err != nil {
				failed++
			}
			all = all && stored[s.value] == 1
			some = some || stored[s.value] > 0
		}
		for _, s := range tx.values {
			switch {
			case tx.end == "Commit" && tx.err == nil && s.err == nil:
				check(s, 1, 1, "it was committed")
			case tx.end == "Commit" && tx.err == nil:
				check(s, 0, 0, "the call failed")
			case tx.end == "Commit" && errors.Is(tx.err, flightpool.ErrCommitUnknown):
				check(s, 0, 1, "nobody knows")
			default:
				check(s, 0, 0, fmt.Sprintf("%s said: %v", tx.end, tx.err))
			}
		}
		if some && !all && failed == 0 {
			p.wrong("half of a transaction is stored")
		}
		if errors.Is(tx.err, driver.ErrBadConn) && tx.end == "Commit" {
			p.wrong("Commit says ErrBadConn: %v", tx.err)
		}
	}
	for _, s := range p.values {
		switch {
		case inTx[s]:
		case s.err == nil:
			check(s, 1, 1, "the call succeeded")
		case errors.Is(s.err, driver.ErrBadConn), flightpool.SafeToRetry(s.err):
			check(s, 0, 0, "the call may be repeated")
		default:
			check(s, 0, 1, "the call failed")
		}
	}
}

// sqlServers are the kinds of servers.
var sqlServers = map[string]testserver.Profile{
	"strict": testserver.Strict(), "SwanLake": testserver.SwanLake(), "GizmoSQL": testserver.GizmoSQL(), "Dremio": testserver.Dremio(),
	"Doris": doris(), "ClickHouse": testserver.ClickHouse(), "no sessions": noSessions(),
}

// doris has its results where they were asked for: rigs call the server by another name.
func doris() testserver.Profile {
	p := testserver.Doris()
	p.Locations = nil
	return p
}

// noSessions is InfluxDB's, which also takes changes.
func noSessions() testserver.Profile {
	p := testserver.InfluxDB()
	delete(p.Refuse, "CommandStatementUpdate")
	return p
}

// refusals are answers that a server gives only to what it has not done.
var refusals = []string{"invalid", "unauthenticated", "notfound", "aborted", "exhausted"}

// Whatever fails at whichever moment of the server: nothing of what a *sql.DB has
// said to be stored is missing or stored twice, nothing else is stored, no result
// is short without an error, no call outlasts its context, and nothing is left on
// the server. Each program is tried without a failure; the failures are drawn.
// PROVE_SEED draws others, PROVE_SCENES more.
func TestNoFailureBreaksWhatADBHasSaid(t *testing.T) {
	seed, _ := strconv.ParseUint(os.Getenv("PROVE_SEED"), 10, 64)
	scenes, _ := strconv.Atoi(os.Getenv("PROVE_SCENES"))
	if scenes == 0 {
		scenes = 8
	}
	programs, effects := slices.Sorted(maps.Keys(sqlPrograms)), slices.Concat(slices.Sorted(maps.Keys(sqlEffects)), slices.Sorted(maps.Keys(proxyEffects)))
	servers := slices.Sorted(maps.Keys(sqlServers))
	play := func(kind, server, program string, f sqlFault) (struck bool) {
		broken, struck := performSQL(t, kind, sqlServers[server], program, f)
		if len(broken) > 0 {
			t.Errorf("%s, %s, %s, %+v: %s", kind, server, program, f, strings.Join(broken, "; "))
		}
		return struck
	}
	for i, program := range programs {
		play(kinds[i%len(kinds)], []string{"strict", "SwanLake"}[i%2], program, sqlFault{})
	}
	r := rand.New(rand.NewPCG(seed, 0))
	struck := 0
	for range scenes {
		f := sqlFault{on: sqlPoints[r.IntN(len(sqlPoints))], after: r.IntN(2) == 0, skip: r.IntN(10), effect: effects[r.IntN(len(effects))]}
		if f.after && slices.Contains(refusals, f.effect) {
			f.after = false
		}
		server := servers[r.IntN(len(servers))]
		if server == "SwanLake" && f.effect == "evict" && f.on == testserver.OnStatement {
			f.effect = "kill" // there it runs the statement in another session, and nobody can know
		}
		kind := kinds[r.IntN(len(kinds))]
		if kind == "new" && sqlServers[server].SessionKey == testserver.ByBearer {
			kind = "open" // ADBC's driver does not close what it has for a handshake that fails
		}
		if play(kind, server, programs[r.IntN(len(programs))], f) {
			struck++
		}
	}
	t.Logf("%d of %d faults have struck", struck, scenes)
}
