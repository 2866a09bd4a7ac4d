package prover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// statements are the calls that a pool and a session have alike.
type statements interface {
	Query(ctx context.Context, sql string, args ...any) (*flightpool.QueryResult, error)
	QueryRow(ctx context.Context, sql string, args ...any) *flightpool.Row
	Execute(ctx context.Context, sql string, args ...any) (*flightpool.QueryResult, error)
	Update(ctx context.Context, sql string, args ...any) (flightpool.UpdateResult, error)
	UpdateWithOptions(ctx context.Context, sql string, opts flightpool.QueryOptions) (flightpool.UpdateResult, error)
	QueryWithOptions(ctx context.Context, sql string, opts flightpool.QueryOptions) (*flightpool.QueryResult, error)
	UpdateWithRecordBatch(ctx context.Context, sql string, b arrow.RecordBatch) (flightpool.UpdateResult, error)
	Ingest(ctx context.Context, table string, rows array.RecordReader, opts flightpool.IngestOptions) (int64, error)
}

// do carries out one step, of a or of the pool's.
func (w *world) do(s step, a *actor) {
	switch {
	case a == nil:
		w.doPool(s)
		return
	case s.verb == "acquire":
		w.acquire(s, a)
		return
	case a.handle == nil:
		return // it got none
	}
	w.age(a)
	w.doSession(s, a)
}

// age marks an actor whose session may have ended of old age.
func (w *world) age(a *actor) {
	now := time.Now()
	if w.program.backend == "new" && now.Sub(a.used) >= driverIdle {
		a.shaken, w.late = true, true // and its session stays as the server likes
	}
	if ttl := w.profile.SessionTTL; ttl > 0 && now.Sub(a.used) >= ttl || w.program.auth == "token" && now.Sub(a.since) > tokenLife/2 {
		a.shaken = true
	}
}

func (w *world) doPool(s step) {
	switch s.verb {
	case "sleep":
		w.turn.Unlock()
		time.Sleep(s.duration(0))
		w.turn.Lock()
	case "insert", "execute", "args", "keep", "alter", "returned":
		w.insert(s, nil, w.pool, s.num(0), 1)
	case "rows":
		w.shape(s, nil, w.pool)
	case "create":
		w.insert(s, nil, w.pool, s.num(0), s.num(1))
	case "replace":
		w.replace(s, nil, w.pool)
	case "reset":
		w.pool.Reset()
	case "idle":
		w.pool.EvictIdle()
	case "resize":
		w.program.max = int(s.num(0))
		if err := w.pool.Resize(w.program.max); err != nil {
			w.breaks("error for no reason in "+s.verb, "%q: %v", s, err)
		}
	case "bulk", "each", "ingest":
		w.insert(s, nil, w.pool, s.num(0), s.num(1))
	case "burst":
		w.burst(s)
	case "batch":
		w.batch(s, nil, w.pool)
	case "read":
		w.read(s, nil, w.pool)
	case "find":
		w.find(s)
	case "slow", "keepslow":
		w.slow(s, nil, w.pool)
	case "look":
		w.look(s, nil, w.pool)
	case "setall", "setown", "resetall", "resetown":
		w.paint(s, nil)
	case "source":
		w.sourceDoes(s)
	case "fault":
		w.fault(s)
	case "redial":
		w.redial.at(int(s.num(0)))
	case "answer":
		w.answers.add(answerOf(s))
	case "answers":
		w.answers.clear()
		if w.refusals != nil {
			w.refusals.clear()
		}
		w.settled = true
	case "recover":
		w.recovers()
	case "refuse":
		w.refuse(s)
	case "kill", "goaway", "evict", "expire", "restart", "renew", "limit":
		w.event(s)
	default:
		panic(fmt.Sprintf("no step %q", s))
	}
}

func (w *world) doSession(s step, a *actor) {
	switch s.verb {
	case "begin":
		w.begin(s, a)
	case "commit":
		w.commit(s, a)
	case "rollback":
		w.rollback(s, a)
	case "close":
		w.close(s, a)
	case "insert", "execute", "args", "keep", "alter", "prealter", "returned":
		w.insert(s, a, a.handle, s.num(0), 1)
	case "rows":
		w.shape(s, a, a.handle)
	case "create":
		w.insert(s, a, a.handle, s.num(0), s.num(1))
	case "replace":
		w.replace(s, a, a.handle)
	case "fill":
		w.fill(s, a)
	case "twin":
		w.twin(s, a)
	case "bulk", "each", "ingest":
		w.insert(s, a, a.handle, s.num(0), s.num(1))
	case "batch":
		w.batch(s, a, a.handle)
	case "save", "back", "free":
		w.savepoint(s, a)
	case "read":
		w.read(s, a, a.handle)
	case "slow", "keepslow":
		w.slow(s, a, a.handle)
	case "open", "next", "drop", "finish":
		w.hold(s, a)
	case "closing":
		w.closing(s, a)
	case "meta", "preread", "watch", "ping", "unprepare":
		w.quiet(s, a)
	case "feed":
		w.feed(s, a)
	case "look":
		w.look(s, a, a.handle)
	case "clash":
		w.clash(s, a)
	case "aside":
		w.aside(s, a)
	case "bad", "typo", "badalter":
		w.wrong(s, a)
	case "set":
		w.leave(s, a, "SET colour = 'red'")
	case "temp":
		w.leave(s, a, "CREATE TEMP TABLE IF NOT EXISTS tmp (v BIGINT)")
	case "use":
		w.leave(s, a, "USE memory.other")
	case "setall", "setown", "resetall", "resetown":
		w.paint(s, a)
	case "unmake": // what OnConnect has made
		w.leave(s, a, "DROP TABLE IF EXISTS temp.main.mine")
	case "prepare", "decoy", "decoyread":
		w.prepare(s, a)
	case "run":
		w.run(s, a)
	case "option":
		w.option(s, a)
	case "returning":
		w.returning(s, a)
	case "with":
		w.with(s, a)
	case "panic":
		w.panicking(s, a)
	default:
		panic(fmt.Sprintf("no step %q", s))
	}
}

// held is how many sessions are out.
func (w *world) held() (n int) {
	for _, a := range w.actors {
		if a.handle != nil {
			n++
		}
	}
	return n
}

// inTxBeside reports whether another than a may have a transaction open.
func (w *world) inTxBeside(a *actor) bool {
	for _, other := range w.actors {
		if other != a && other.tx != nil && other.tx.ended == open {
			return true
		}
	}
	return w.parallel
}

// judge notes what an error means to its actor, nil for a call of the pool's.
// Without faults a call fails for a reason only.
func (w *world) judge(s step, a *actor, err error) {
	if err == nil {
		return
	}
	var e *flightpool.Error
	known := errors.As(err, &e)
	if !known && !errors.Is(err, flightpool.ErrClosed) && !errors.Is(err, errPanicked) && !errors.Is(err, errStop) {
		w.breaks("untyped error", "%q: %v", s, err)
	}
	late := errors.Is(err, context.DeadlineExceeded) && (s.within > 0 || s.limit > 0) || errors.Is(err, context.Canceled) && s.cut > 0
	w.late = w.late || late
	switch {
	case errors.Is(err, flightpool.ErrExhausted) && (w.parallel || w.held() >= w.program.max):
	case errors.Is(err, backend.ErrBusy) && a != nil && a.held != nil:
	case w.profile.FreshCookie && errors.Is(err, flightpool.ErrSessionLost) && (a == nil || !a.heard || w.srv.Ledger().Snapshot().SessionsEvicted > a.evicted): // it had ended when it was acquired, or since
	case w.profile.CountedIDs && errors.Is(err, flightpool.ErrSessionLost) && w.inTxBeside(a) && strings.Contains(err.Error(), "to two sessions at once"):
	case w.program.auth == "token" && known && (e.Fault == flightpool.FaultAuth || e.Fault == flightpool.FaultSession && strings.Contains(err.Error(), "Unauthenticated: ")) && w.mayExpire(s, a): // during the call, or since the session was lent
	case w.sourceWorse:
	case !w.calm && (!w.settled || a != nil && !a.settled), late, errors.Is(err, errPanicked), errors.Is(err, errStop), s.arg(1) == "result" && errors.Is(err, backend.ErrBusy), known && e.Fault == flightpool.FaultUnsupported && w.mayLack(s.verb):
	case a == nil && w.profile.SessionKey == testserver.ByCall && known && e.Fault == flightpool.FaultStatement:
	case a != nil && (a.shaken || w.profile.SessionKey == testserver.ByCall || a.tx != nil && (a.tx.failed || a.tx.ended != open)):
	default:
		w.breaks("error for no reason in "+s.verb, "%q: %v", s, err)
	}
	if a != nil {
		panicked := errors.Is(err, errPanicked) && s.verb == "rows" // which ends a loop as a return does: the transaction may go on
		a.shaken = a.shaken || late || panicked || errors.Is(err, flightpool.ErrSessionLost)
		refused := panicked || known && (e.Unsent || e.Fault == flightpool.FaultUsage || e.Fault == flightpool.FaultUnsupported)
		if a.tx != nil && a.tx.ended == open && !refused {
			a.tx.failed = true
			a.tx.told = a.tx.told || isStatement(s.verb)
		}
	}
}

// mayExpire reports whether a token that was good for some seconds when its connection was lent may have ended.
func (w *world) mayExpire(s step, a *actor) bool {
	return !w.calm || s.verb == "burst" || w.took > leastTokenLeft || a != nil && time.Since(a.since) > leastTokenLeft
}

// mayLack reports whether the server, or its driver, need not have what a step asks for.
func (w *world) mayLack(verb string) bool {
	switch verb {
	case "insert", "execute", "args", "keep", "read", "rows", "slow", "keepslow", "look", "begin", "commit", "rollback", "set", "temp", "use", "clash":
		return len(w.profile.Refuse) > 0
	default:
		return true
	}
}

// isStatement reports whether a step runs statements, of which one that fails aborts its transaction. The refusal of
// an option, a ping or the closing of a prepared statement leaves it to the server.
func isStatement(verb string) bool {
	switch verb {
	case "insert", "execute", "args", "keep", "alter", "prealter", "returned", "bulk", "each", "ingest", "create", "replace", "fill", "feed", "panic", "run",
		"read", "rows", "slow", "keepslow", "watch", "clash", "aside", "set", "temp", "use", "unmake", "setall", "setown", "resetall", "resetown", "twin":
		return true
	default:
		return false
	}
}

// insert stores n rows from first on.
func (w *world) insert(s step, a *actor, q statements, first, n int64) {
	since := w.now()
	switch s.verb {
	case "bulk", "args":
		w.bound++
	case "each":
		w.bound += int(n)
	}
	q = w.as(s, q)
	sql := fmt.Sprintf("INSERT INTO %s VALUES (%d)", w.table, first)
	switch s.verb {
	case "alter", "prealter":
		sql = fmt.Sprintf("ALTER TABLE %s ADD COLUMN c BIGINT DEFAULT %d", w.altered(first), first)
	case "returned":
		sql += " RETURNING k"
	}
	err := w.call(s, func(ctx context.Context) (err error) {
		switch s.verb {
		case "execute":
			var res *flightpool.QueryResult
			if res, err = q.Execute(ctx, sql); err == nil {
				res.Release()
			}
		case "returned":
			got, failed := values(q.Query(ctx, sql))
			if err = failed; err == nil && !slices.Equal(got, []string{s.arg(0)}) && (len(got) > 0 || !w.profile.ByText) { // such a server drops them
				w.breaks("wrong rows", "%q: %v", s, got)
			}
		case "ingest":
			err = ingest(ctx, q, "log", first, n, flightpool.IngestOptions{Catalog: "memory", Schema: "main"})
		case "create":
			err = ingest(ctx, q, created(first), first, n, flightpool.IngestOptions{Catalog: "memory", Schema: "main", Mode: flightpool.IngestCreate})
		case "bulk":
			rows := batch(first, n)
			defer rows.Release()
			_, err = q.UpdateWithRecordBatch(ctx, "INSERT INTO "+w.table+" VALUES (?)", rows)
		case "each":
			rows := columns(first, n, 1, -1)
			defer rows.Release()
			_, err = q.UpdateWithRecordBatch(ctx, "UPDATE "+w.eachOf(first)+" SET k = ? WHERE k = ?", rows)
		case "args":
			_, err = q.Update(ctx, "INSERT INTO "+w.table+" VALUES (?)", first)
		case "prealter":
			var stmt *flightpool.PreparedQuery
			if stmt, err = a.handle.PrepareQuery(ctx, sql); err == nil {
				_, err = stmt.Update(ctx)
			}
		case "keep":
			_, err = q.UpdateWithOptions(ctx, sql, flightpool.QueryOptions{NoCancel: true})
		default:
			_, err = q.Update(ctx, sql)
		}
		return err
	})
	inBulk := s.verb == "bulk" || s.verb == "each" || s.verb == "ingest" || s.verb == "create" || s.verb == "args"
	if (s.verb == "bulk" || s.verb == "args") && a != nil {
		a.noteBound(w)
	}
	w.record(s, a, first, n, err)
	if (s.verb == "alter" || s.verb == "prealter") && a != nil {
		a.note(s.verb) // which may be more than can be undone
	}
	if s.verb == "returned" && backend.FaultIn(err) == flightpool.FaultUsage && unsent(err) {
		return // on servers that might run it twice
	}
	w.judge(s, a, err)
	if err == nil && !inBulk {
		w.alone(s, sql)
		w.isHome(s, a, sql, since)
	}
}

// A moment is when a call began, and how many statements had been run before.
type moment struct {
	statements int
	at         time.Time
}

func (w *world) now() moment { return moment{len(w.srv.Ledger().Statements()), time.Now()} }

// isHome sees to it that what was run in a call that has begun then was in the session its actor has
// something to lose, and in one that OnConnect has prepared. A session that answers the
// proof and ends before the statement comes is replaced unseen. A read goes without a
// proof for 5 s after the session was heard of, as proveSession says, or after the last
// proof of a prepared one; the server may begin it later.
func (w *world) isHome(s step, a *actor, sql string, since moment) {
	all := w.srv.Ledger().Statements()
	ran := w.lastRun(sql)
	read := strings.HasPrefix(sql, "SELECT")
	young := func(st testserver.Statement) bool { return read && since.at.Sub(st.Began) < 5*time.Second }
	if a != nil && a.home != 0 && ran.Session != a.home && w.program.backend != "new" {
		proven := func(st testserver.Statement) bool { return st.Session == a.home }
		heardOf := func(st testserver.Statement) bool { return proven(st) && young(st) }
		if !slices.ContainsFunc(all[since.statements:], proven) && !slices.ContainsFunc(all, heardOf) {
			w.breaks("statement in another session", "%q ran in session %d, what its handle has is in session %d", s, ran.Session, a.home)
		}
	}
	proven := func(st testserver.Statement) bool {
		return (st.Peer == ran.Peer || w.program.backend == "new") && isProof(st) && isPrepared(st, all) && (st.ID > since.statements || young(st)) // which dials again
	}
	if w.program.prepare != "" && !isPrepared(ran, all) && !slices.ContainsFunc(all, proven) && (losesUnseen(w.profile) || !w.begunBehindProof(ran, all)) {
		w.breaks("statement in an unprepared session", "%q ran in session %d: %s", s, ran.Session, sql)
	}
}

// alone looks for statements of earlier calls that still run in the session that
// has run sql: their connection must not be used again.
func (w *world) alone(s step, sql string) {
	if !w.profile.SideBySide {
		return // no statement runs there beside another
	}
	session := w.sessionOf(sql)
	for _, st := range w.srv.Ledger().Statements() {
		if st.SQL == sql {
			return // what comes later may be the next borrower's
		}
		if st.Session == session && st.State == testserver.Running {
			w.breaks("session in use", "%q ran in session %d, where %q of %s ago still runs", s, session, st.SQL, st.Took)
		}
	}
}

// noteBound notes an INSERT with parameters, which can move the session.
func (a *actor) noteBound(w *world) {
	a.note("bound")
	if w.profile.AppendTo != "" {
		a.note("use")
	}
}

func (a *actor) note(what string) {
	if a.dirty == nil {
		a.dirty = map[string]bool{}
	}
	a.dirty[what] = true
}

// record notes what a call said of the rows that it was to store.
func (w *world) record(s step, a *actor, first, n int64, err error) {
	elsewhere := s.verb == "alter" || s.verb == "prealter" || s.verb == "create" || s.verb == "each"
	for k := first; k < first+n; k++ {
		if w.tokens[k] != nil {
			return // the same number twice: not this test's
		}
		if a != nil && a.tx != nil && a.tx.ended == open {
			w.tokens[k] = w.partOf(a.tx, s, err)
			w.tokens[k].elsewhere = elsewhere
			continue
		}
		t := &token{step: s.String(), elsewhere: elsewhere}
		w.tokens[k] = t
		switch {
		case err == nil:
			t.alone = stored
		case w.refusedBefore(err), unsent(err): // nothing of several either: that would be Partial
			t.alone = never
		default:
			t.alone = either
		}
	}
}

// read takes rows and holds them against what they are.
func (w *world) read(s step, a *actor, q statements) {
	rows, size := s.num(1), s.num(2)
	take := int64(-1)
	if s.arg(3) != "all" {
		take = s.num(3)
	}
	since := w.now()
	sql := fmt.Sprintf("SELECT * FROM generate(%d, %d) -- %s", rows, size, s.arg(0))
	err := w.call(s, func(ctx context.Context) error {
		res, err := w.as(s, q).Query(ctx, sql)
		if err != nil {
			return err
		}
		defer res.Release()
		next := int64(0)
		for batches := int64(0); take < 0 || batches < take; batches++ {
			if !res.Next() {
				if res.Err() == nil && next != rows {
					w.breaks("short result", "%q: %d rows of %d and no error", s, next, rows)
				}
				if res.Err() == nil {
					w.isHome(s, a, sql, since)
				}
				return res.Err()
			}
			for _, row := range numbers(res.RecordBatch()) {
				if len(row) != 1 || row[0] != next {
					w.breaks("wrong rows", "%q: row %d is %v", s, next, row)
				}
				next++
			}
		}
		if a != nil {
			a.shaken = true // an early end may cost the session, if it says so
		}
		return nil
	})
	w.judge(s, a, err)
}

// find has a parameter, and one of several texts, of which each answers with its number.
func (w *world) find(s step) {
	err := w.call(s, func(ctx context.Context) error {
		res, err := w.as(s, w.pool).Query(ctx, fmt.Sprintf("SELECT ?, %d", s.num(1)), s.num(0))
		if err != nil {
			return err
		}
		defer res.Release()
		n := 0
		for res.Next() {
			for _, row := range numbers(res.RecordBatch()) {
				if n++; n > 1 || len(row) != 2 || row[0] != s.num(0) || row[1] != s.num(1) {
					w.breaks("wrong rows", "%q: %v", s, row)
				}
			}
		}
		if res.Err() == nil && n != 1 {
			w.breaks("short result", "%q: %d rows and no error", s, n)
		}
		return res.Err()
	})
	w.judge(s, nil, err)
}

func (w *world) slow(s step, a *actor, q statements) {
	if a != nil && w.program.backend == "new" && w.profile.SessionTTL > 0 && s.duration(1) >= w.profile.SessionTTL {
		a.shaken = true // its session may end before it does, of which the driver hears
	}
	err := w.call(s, func(ctx context.Context) error {
		return drain(w.as(s, q).QueryWithOptions(ctx, fmt.Sprintf("SELECT sleep('%s') -- %s", s.arg(1), s.arg(0)), flightpool.QueryOptions{NoCancel: s.verb == "keepslow"}))
	})
	if limit := max(s.within, s.cut, s.limit); err == nil && limit > 0 && limit+overtime < s.duration(1) {
		w.breaks("wrong rows", "%q: it has not run so long", s)
	}
	w.judge(s, a, err)
}

func drain(res *flightpool.QueryResult, err error) error {
	if err != nil {
		return err
	}
	defer res.Release()
	for res.Next() {
		continue
	}
	return res.Err()
}

// look is what a borrower sees of those before, and of OnConnect. A session that was
// replaced since its last proof shows nothing.
func (w *world) look(s step, a *actor, q statements) {
	w.looks++
	colour, place := "(null)", "memory.main"
	if w.program.prepare != "" {
		colour, place = "blue", preparedPlace
	}
	number, since, there := w.looks, w.now(), w.storedBefore(a)
	ask := func(ctx context.Context, sql string) (v []string, ok bool) {
		sql, since := fmt.Sprintf("%s -- look %d", sql, number), moment{since.statements, time.Now()}
		v, err := values(q.Query(ctx, sql))
		if err != nil {
			return v, false
		}
		w.turn.Lock()
		defer w.turn.Unlock()
		w.isHome(s, a, sql, since)
		return v, w.program.prepare == "" || isPrepared(w.lastRun(sql), w.srv.Ledger().Statements())
	}
	_ = w.call(s, func(ctx context.Context) error {
		if w.program.auth == "token" && w.profile.SessionKey == testserver.ByBearer {
			return nil // whoever has the token has the session
		}
		if v, ok := ask(ctx, "SELECT current_setting('colour')"); ok && !a.has("set") && !w.stays("set") && len(v) == 1 && v[0] != colour {
			w.breaks("setting of another", "%q sees colour %v", s, v)
		}
		if v, ok := ask(ctx, "SELECT current_database(), current_schema()"); ok && !a.has("use") && !w.stays("use") && strings.Join(v, ".") != place {
			w.breaks("catalogue of another", "%q is in %v", s, v)
		}
		if v, ok := ask(ctx, "SELECT current_setting('"+shade+"')"); ok && len(v) == 1 {
			w.turn.Lock()
			w.seesShade(s, a, v[0])
			w.turn.Unlock()
		}
		if v, ok := ask(ctx, "SELECT * FROM "+w.table); ok {
			w.turn.Lock()
			w.seen(s, a, v)
			for _, k := range there {
				if !slices.Contains(v, strconv.FormatInt(k, 10)) {
					w.breaks("rows that are stored are not seen", "%q does not see %d of %q", s, k, w.tokens[k].step)
				}
			}
			w.turn.Unlock()
		}
		if a != nil && a.tx != nil {
			return nil // what fails would abort it
		}
		if a != nil {
			if options, err := a.handle.Options(ctx); err == nil && !a.has("option") && !w.stays("option") && options["answered"] != nil {
				w.breaks("option of another", "%q sees %v", s, options)
			}
		}
		if _, err := values(q.Query(ctx, "SELECT * FROM tmp")); err == nil && !a.has("temp") && !w.stays("temp", "fill") {
			w.breaks("temporary table of another", "%q sees it", s)
		}
		if w.program.prepare != "" && !w.evicts && !a.has("unmake") && !w.stays("unmake", "replace") {
			if _, err := values(q.Query(ctx, "SELECT * FROM mine")); err != nil && strings.Contains(err.Error(), "mine does not exist") {
				w.breaks("temporary table taken away", "%q: %v", s, err)
			}
		}
		return nil
	})
	if a != nil && a.tx != nil && a.tx.ended == open {
		a.tx.failed = a.tx.failed || !w.calm // if one of these has failed
	}
}

// stays reports whether what steps of these verbs do to a session is there for the next borrower.
func (w *world) stays(verbs ...string) bool {
	kept := w.program.reset == "none" || w.program.reset == "sql" && verbs[0] != "set" && verbs[0] != "use" && verbs[0] != "temp"
	return kept && slices.ContainsFunc(w.program.steps, func(s step) bool { return slices.Contains(verbs, s.verb) })
}

// storedBefore are the rows that whoever looks now, outside of transactions, sees: those of which a call, or the COMMIT of
// its transaction, has said that they are stored.
func (w *world) storedBefore(a *actor) (there []int64) {
	if a != nil && a.tx != nil {
		return nil
	}
	for k, t := range w.tokens {
		if !t.elsewhere && t.outcome() == stored {
			there = append(there, k)
		}
	}
	return there
}

func (a *actor) has(what string) bool { return a != nil && a.dirty[what] }

// seen holds the rows that a call sees against what is stored.
func (w *world) seen(s step, a *actor, rows []string) {
	for _, row := range rows {
		k, _ := strconv.ParseInt(row, 10, 64)
		t := w.tokens[k]
		switch {
		case t == nil:
		case t.tx == nil && t.alone == never, t.tx != nil && t.tx.ended == never:
			w.breaks("rows that are not stored", "%q sees %d of %q", s, k, t.step)
		case t.tx != nil && t.tx.ended == open && !t.tx.aside && !t.tx.ending && (a == nil || a.tx != t.tx):
			w.breaks("rows that are not stored", "%q sees %d of %q, whose transaction is open", s, k, t.step)
		}
	}
}

// values are all values as text.
func values(res *flightpool.QueryResult, err error) ([]string, error) {
	if err != nil {
		return nil, err
	}
	defer res.Release()
	var all []string
	for res.Next() {
		b := res.RecordBatch()
		for i := range int(b.NumRows()) {
			for _, col := range b.Columns() {
				all = append(all, strings.Clone(col.ValueStr(i)))
			}
		}
	}
	return all, res.Err()
}

func (w *world) acquire(s step, a *actor) {
	if a.handle != nil {
		return
	}
	var handle *flightpool.SessionHandle
	settled := w.settled
	err := w.call(s, func(ctx context.Context) (err error) {
		handle, err = w.poolOf(s).AcquireSession(ctx)
		return err
	})
	if err != nil {
		w.judge(s, nil, err)
		return
	}
	*a = actor{handle: handle, since: time.Now(), evicted: w.srv.Ledger().Snapshot().SessionsEvicted, used: time.Now(), settled: settled, done: a.done}
}

func (w *world) close(s step, a *actor) {
	t := a.tx
	if t != nil && t.ended == open {
		t.ended = never
		if t.aside {
			t.ended = either
		}
	}
	w.age(a)
	err := w.call(s, func(context.Context) error { return a.handle.Close() })
	if t != nil && t.ended == never && err != nil && w.mayReplaceBeside() { // another session has rolled back what is none of its
		t.ended = either
	}
	w.strayed = w.strayed || w.program.backend == "new" && errors.Is(err, flightpool.ErrSessionLost)
	// What cannot be made clean costs the connection, and Close says so.
	uncleanable := len(a.dirty) > 0 || w.profile.SessionKey == testserver.ByCall || w.program.reset == "discard"
	if err != nil && w.calm && !a.shaken && !uncleanable {
		w.breaks("error for no reason in "+s.verb, "%q: %v", s, err)
	}
	w.letGo(a)
	w.painted(a)
	*a = actor{done: a.done}
}

func (w *world) begin(s step, a *actor) {
	if a.tx != nil && a.tx.ended == open {
		if err := w.call(s, func(ctx context.Context) error { return a.handle.BeginTransaction(ctx) }); err == nil {
			w.breaks("failure unnoticed", "%q, inside of a transaction", s)
		}
		return
	}
	err := w.call(s, func(ctx context.Context) error { return a.handle.BeginTransaction(ctx) })
	if err != nil { // what it may have begun all the same is taken back before the next call, or the session is lost
		w.judge(s, a, err)
		a.shaken = true
		return
	}
	a.tx = &tx{}
}

func (w *world) commit(s step, a *actor) {
	if a.tx == nil {
		w.endOfNothing(s, a.handle.Commit)
		return
	}
	if a.tx.ended != open {
		return
	}
	t := a.tx
	t.ending = true
	err := w.call(s, func(ctx context.Context) error { return a.handle.Commit(ctx) })
	t.ending = false
	switch {
	case err == nil:
		t.ended = stored
		if t.told || t.failed && w.calm {
			w.breaks("commit of an aborted transaction", "%q is confirmed", s)
		}
	case errors.Is(err, backend.ErrBusy) && !errors.Is(err, flightpool.ErrTxAborted): // else it is why a caller has left
		return
	case t.aside && !errors.Is(err, flightpool.ErrTxAborted): // which alone says that nothing is stored
		t.ended = either
	case errors.Is(err, flightpool.ErrCommitUnknown):
		t.ended = together
	case w.replacedBeside(err):
		t.ended = either
	default:
		t.ended = never
	}
	switch {
	case err == nil:
		a.tx = nil
	case errors.Is(err, flightpool.ErrTxAborted) && w.calm && (t.failed || t.clashed):
		a.tx, a.refused = nil, true // the handle is good for the next
	default:
		w.judge(s, a, err)
		a.shaken = true
	}
}

// endOfNothing ends a transaction where there is none.
func (w *world) endOfNothing(s step, end func(context.Context) error) {
	if err := w.call(s, end); err == nil && (s.verb != "rollback" || !w.actors[s.who].refused) {
		w.breaks("failure unnoticed", "%q, outside of a transaction", s)
	}
}

// mayReplaceBeside reports whether a session may be replaced between its proof and
// the statement behind it, by a step that is carried out beside that: a server that
// accepts unknown transactions stores the statement then.
func (w *world) mayReplaceBeside() bool {
	beside := w.parallel || w.program.prepare == "begun" // connections that are opened end a transaction
	return beside && w.evicts && losesUnseen(w.profile)
}

// replacedBeside reports whether an error may tell of that. A panic is told in place of it.
func (w *world) replacedBeside(err error) bool {
	return w.mayReplaceBeside() && (errors.Is(err, flightpool.ErrSessionLost) || errors.Is(err, errPanicked))
}

// clash changes the one row that others change too, so that the commit of one
// of them is refused.
func (w *world) clash(s step, a *actor) {
	if a.tx == nil || a.tx.ended != open {
		return
	}
	k := s.num(0)
	err := w.call(s, func(ctx context.Context) error {
		_, err := w.as(s, a.handle).Update(ctx, fmt.Sprintf("UPDATE %s SET v = %d", w.hot, k))
		return err
	})
	a.tx.clashed = a.tx.clashed || err == nil
	w.clashes[k] = w.partOf(a.tx, s, err)
	w.judge(s, a, err)
}

// partOf is what a call that ended in err was to store in an open transaction.
func (w *world) partOf(of *tx, s step, err error) *token {
	t := &token{tx: of, step: s.String()}
	if n := len(of.saves); n > 0 {
		of.saves[n-1].since = append(of.saves[n-1].since, t)
	}
	if err != nil {
		t.tx, t.alone = nil, never // the transaction is aborted with it
		if !w.refusedBefore(err) {
			t.tx = of // and is with it whatever it is
			if of.aside {
				t.alone = either // the server may have left the transaction unseen
			}
		}
	}
	return t
}

// aside changes a table of another catalog, which some servers leave the
// transaction for.
func (w *world) aside(s step, a *actor) {
	w.asides++
	sql := fmt.Sprintf("INSERT INTO memory.side VALUES (%d)", w.asides)
	err := w.call(s, func(ctx context.Context) error {
		_, err := w.as(s, a.handle).Update(ctx, sql)
		return err
	})
	w.judge(s, a, err)
	if a.tx != nil && a.tx.ended == open {
		a.tx.aside = true
		a.shaken = true
	}
}

// burst stores n rows at once; beside each of them a statement runs into its
// deadline, which must stop nothing else.
func (w *world) burst(s step) {
	n := s.num(1)
	results := make([]error, n)
	w.turn.Unlock()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			results[i] = w.timed(s, func(ctx context.Context) error {
				_, err := w.pool.Update(ctx, fmt.Sprintf("INSERT INTO %s VALUES (%d)", w.table, s.num(0)+i))
				return err
			})
		})
		all.Go(func() {
			slow := step{verb: "slow", args: []string{s.arg(0), "1m"}, within: time.Duration(i+1) * 100 * time.Millisecond}
			if err := w.timed(slow, func(ctx context.Context) error {
				return drain(w.pool.Query(ctx, fmt.Sprintf("SELECT sleep('1m') -- %d", s.num(0)+i)))
			}); err == nil {
				w.breaks("wrong rows", "%q: it has not run so long", slow)
			}
		})
	}
	all.Wait()
	w.turn.Lock()
	for i, err := range results {
		w.record(s, nil, s.num(0)+int64(i), 1, err)
		w.judge(s, nil, err)
	}
	w.late = true
}

func (w *world) rollback(s step, a *actor) {
	if a.tx == nil {
		w.endOfNothing(s, a.handle.Rollback)
		return
	}
	t := a.tx
	err := w.call(s, func(ctx context.Context) error { return a.handle.Rollback(ctx) })
	if errors.Is(err, backend.ErrBusy) {
		return
	}
	if t.ended == open {
		t.ended = never
		if t.aside && err != nil || w.replacedBeside(err) {
			t.ended = either
		}
	}
	if err != nil {
		w.judge(s, a, err)
		a.shaken = true
		a.tx = &tx{ended: never}
		return
	}
	a.tx = nil
}

// wrong sends what fails.
func (w *world) wrong(s step, a *actor) {
	sql := map[string]string{"bad": "SELECT error('bad')", "typo": "SELEC 1", "badalter": "ALTER TABLE " + w.decoy + " ADD COLUMN k BIGINT DEFAULT 1"}[s.verb]
	err := w.call(s, func(ctx context.Context) error {
		if s.verb == "badalter" {
			a.note(s.verb)
			_, err := a.handle.Update(ctx, sql)
			return err
		}
		return drain(w.as(s, a.handle).Query(ctx, sql))
	})
	if err == nil {
		w.breaks("failure unnoticed", "%q", s)
		return
	}
	var e *flightpool.Error
	if errors.As(err, &e) && (e.Fault == flightpool.FaultStatement || e.Fault == flightpool.FaultUsage) {
		if a.tx != nil && !unsent(err) {
			a.tx.failed = true
			a.tx.told = a.tx.told || e.Fault == flightpool.FaultStatement
		}
		return
	}
	w.judge(s, a, err)
}

// leave changes the session.
func (w *world) leave(s step, a *actor, sql string) {
	a.note(s.verb)
	err := w.call(s, func(ctx context.Context) error {
		_, err := w.as(s, a.handle).Update(ctx, sql)
		return err
	})
	w.judge(s, a, err)
	if err == nil {
		w.atHome(a, sql)
	}
}

// option sets one of the Flight session.
func (w *world) option(s step, a *actor) {
	a.note(s.verb)
	err := w.call(s, func(ctx context.Context) error { return a.handle.SetOption(ctx, "answered", "yes") })
	w.judge(s, a, err)
}

// returning sends a change that has rows. The engine refuses it, after all else.
func (w *world) returning(s step, a *actor) {
	err := w.call(s, func(ctx context.Context) error {
		return drain(a.handle.Query(ctx, "INSERT INTO "+w.table+" VALUES (?) RETURNING k"))
	})
	var e *flightpool.Error
	if errors.As(err, &e) && (e.Fault == flightpool.FaultStatement || e.Fault == flightpool.FaultUsage) {
		if a.tx != nil && !unsent(err) {
			a.tx.failed = true
		}
		return
	}
	w.judge(s, a, err)
}

func (w *world) prepare(s step, a *actor) {
	var q *flightpool.PreparedQuery
	sql := map[string]string{
		"prepare": "INSERT INTO " + w.table + " VALUES (?)", "decoy": "INSERT INTO " + w.decoy + " VALUES (?)", "decoyread": "SELECT 1 AS x",
	}[s.verb]
	err := w.call(s, func(ctx context.Context) (err error) {
		q, err = a.handle.PrepareQuery(ctx, sql)
		return err
	})
	w.judge(s, a, err)
	switch {
	case err != nil:
	case s.verb != "prepare":
		a.decoys = append(a.decoys, q)
	default:
		a.prepared = q
	}
}

// atHome notes in which session of the server's an actor has something to lose.
func (w *world) atHome(a *actor, sql string) {
	if a.home == 0 && w.profile.SessionTTL > 0 { // other sessions are as old as their connection
		a.home = w.sessionOf(sql)
	}
}

// sessionOf is the session that has run a statement last, 0 if none has.
func (w *world) sessionOf(sql string) int { return w.lastRun(sql).Session }

// lastRun is when a statement was run last, zero if never.
func (w *world) lastRun(sql string) testserver.Statement {
	for _, st := range slices.Backward(w.srv.Ledger().Statements()) {
		if st.SQL == sql && st.State == testserver.Done {
			return st
		}
	}
	return testserver.Statement{}
}

func (w *world) run(s step, a *actor) {
	if a.prepared == nil {
		return
	}
	rows := batch(s.num(0), 1)
	defer rows.Release()
	w.bound++
	err := w.call(s, func(ctx context.Context) error {
		_, err := a.prepared.Update(ctx, rows)
		return err
	})
	a.noteBound(w)
	w.record(s, a, s.num(0), 1, err)
	// What is prepared in a transaction is not prepared again behind it by a driver that is not known.
	a.shaken = a.shaken || err != nil && w.program.backend == "new"
	w.judge(s, a, err)
}

var errStop = errors.New("the program wants no more")

// with is WithTransaction, whose function stores two rows and then does what
// the step says.
func (w *world) with(s step, a *actor) {
	if a.tx != nil {
		return
	}
	t := &tx{}
	err := w.call(s, func(ctx context.Context) error {
		return a.handle.WithTransaction(ctx, func(ctx context.Context, h *flightpool.SessionHandle) error {
			a.tx = t
			for k := s.num(0); k < s.num(0)+2; k++ {
				_, err := h.Update(ctx, fmt.Sprintf("INSERT INTO %s VALUES (%d)", w.table, k))
				w.turn.Lock()
				w.record(s, a, k, 1, err)
				t.ending = true
				w.turn.Unlock()
				if err != nil {
					t.failed = true
					return err
				}
			}
			switch s.arg(1) {
			case "error":
				return errStop
			case "result": // which is ended with the transaction
				_, err := h.Query(ctx, "SELECT * FROM generate(7, 1)")
				return err
			case "panic":
				panic(programPanic)
			}
			return nil
		})
	})
	t.ending = false
	switch {
	case err == nil:
		t.ended = stored
	case errors.Is(err, flightpool.ErrCommitUnknown):
		t.ended = together
	case w.replacedBeside(err):
		t.ended = either
	default:
		t.ended = never
	}
	a.tx = nil
	if err != nil {
		w.judge(s, a, err)
		a.shaken = a.shaken || !errors.Is(err, errStop) && !errors.Is(err, errPanicked)
		a.tx = &tx{ended: t.ended}
	}
}

// panicking ingests from a reader that panics.
func (w *world) panicking(s step, a *actor) {
	k := s.num(0)
	err := w.call(s, func(ctx context.Context) error {
		rows := batch(k, 1)
		defer rows.Release()
		reader := array.ReaderFromIter(rows.Schema(), func(yield func(arrow.RecordBatch, error) bool) {
			rows.Retain()
			if yield(rows, nil) {
				panic(programPanic)
			}
		})
		defer reader.Release()
		_, err := a.handle.Ingest(ctx, "log", reader, flightpool.IngestOptions{Catalog: "memory", Schema: "main"})
		return err
	})
	if err == nil {
		w.breaks("failure unnoticed", "%q", s)
	}
	t := &token{alone: either, step: s.String()}
	var e *flightpool.Error
	switch {
	case errors.As(err, &e) && e.Unsent: // refused before the reader was asked, as ADBC's driver is in a transaction
		t.alone = never
	case a.tx != nil && a.tx.ended == open:
		t.tx = a.tx
		w.strayed = w.strayed || losesUnseen(w.profile) // its end could overtake the rows
	}
	w.tokens[k] = t
	w.judge(s, a, err)
	a.shaken = true
}

// event happens to the whole server, now or in some time.
func (w *world) event(s step) {
	f := w.srv.Faults()
	happen := func() {
		switch s.verb {
		case "kill":
			f.KillConns()
		case "goaway":
			f.GoAway()
		case "limit":
			f.EndStatements()
		case "evict":
			f.EvictSessions()
		case "restart":
			w.restart()
		case "renew":
			w.answers.renew(func() string { return w.renewed(s.arg(0) == "gone") })
		case "expire":
			if w.program.auth == "basic" {
				f.ExpireTokens()
			} else {
				f.ExpireToken(w.lastToken())
			}
		}
	}
	if s.arg(0) == "in" {
		w.timers = append(w.timers, time.AfterFunc(s.duration(1), happen))
		return
	}
	happen()
}

// restart is the end of a server that comes back at once: its sessions have gone, and
// every connection.
func (w *world) restart() {
	w.srv.Faults().EvictSessions()
	w.srv.Faults().KillConns()
}

var failures = map[string]codes.Code{
	"Unavailable": codes.Unavailable, "Internal": codes.Internal, "ResourceExhausted": codes.ResourceExhausted,
	"Unauthenticated": codes.Unauthenticated, "FailedPrecondition": codes.FailedPrecondition, "InvalidArgument": codes.InvalidArgument,
}

// fault sets what goes wrong once.
func (w *world) fault(s step) {
	f := testserver.Fault{On: testserver.Point(s.arg(1)), After: s.arg(2) == "after", Times: 1, Skip: int(s.num(4))}
	switch s.arg(0) {
	case "kill":
		f.Do = testserver.Kill()
	case "freeze":
		f.Do = testserver.Freeze()
	case "evict":
		f.Do = testserver.Evict()
	case "delay":
		f.Do = testserver.Delay(s.duration(3))
	case "restart":
		f.Do = testserver.Effects(testserver.Do(w.restart), testserver.Kill())
	case "truncate":
		f.Do = testserver.TruncatedBody
	case "goaway":
		f.Do = testserver.GoAway()
	case "fail":
		f.Do = testserver.Fail(failures[s.arg(3)], "a fault of the program")
	default:
		panic(fmt.Sprintf("no fault %q", s))
	}
	w.srv.Faults().Set(f)
}
