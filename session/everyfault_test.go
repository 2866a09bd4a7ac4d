package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/cancel"
)

// play is one use of a session on a world, and what its calls have said.
type play struct {
	w        *world
	s        *SessionHandle
	policy   *Policy
	next     int    // the value of the next INSERT
	place    string // where the caller believes to be; "" after a call that failed
	placed   map[int]string
	loose    []said // outside of transactions
	tx       *txSaid
	txs      []*txSaid
	returned []error
	pauses   int
	replace  int // the pause in which the server replaces the session, from 1
	replaced bool
	firstErr error    // after that
	failed   []string // the steps that failed
	errs     []error  // of them
	open     []*QueryResult
	kept     map[string]*PreparedQuery
	unrun    []*PreparedQuery
	took     time.Duration // by calls
	mayFail  []string      // steps that fail in any case
	endOwner func()        // ends the context of the connections' owner
	seen     map[string]int
	broken   []string
}

// said is what a call said of a value that it was to store.
type said struct {
	value  int
	err    error
	undone bool // by RollbackTo
}

// txSaid is what was said of a transaction. end is "", "Commit" or "Rollback".
type txSaid struct {
	values []said
	end    string
	err    error
}

func (p *play) wrong(format string, args ...any) {
	p.broken = append(p.broken, fmt.Sprintf(format, args...))
}

// step is one call of a program.
type step struct {
	name string
	do   func(ctx context.Context, p *play) error
}

// patience is how long the context of a step lasts.
const patience = time.Second

func (p *play) run(steps []step) {
	for _, s := range steps {
		ctx, stop := p.contextOfStep()
		start := time.Now()
		err := p.guarded(ctx, s)
		p.judgeEnd(ctx, s.name, err)
		if took := time.Since(start); s.name != "pause" {
			if p.took += took; took > patience {
				p.wrong("%s took %s", s.name, took)
			}
		}
		if err != nil {
			p.failed, p.errs = append(p.failed, s.name), append(p.errs, err)
			p.judge(ctx, s.name, err)
		}
		stop()
	}
	for _, res := range p.open {
		res.Release()
	}
	start := time.Now()
	err := p.s.Close()
	took := time.Since(start)
	if p.took += took; took > p.policy.closeTimeout() {
		p.wrong("Close took %s", took)
	}
	time.Sleep(p.policy.grace()) // a statement that was cut may have been left to arrive
	if p.w.binds {
		time.Sleep(p.policy.budget()) // each that was left has that
	}
	synctest.Wait()
	if len(p.w.faults) == 0 {
		for i, ctx := range p.w.ctxs {
			if ctx.Err() == nil {
				p.wrong("the context of %q has not ended", p.w.log[i])
			}
		}
	}
	time.Sleep(2 * time.Minute)
	synctest.Wait()
	if len(p.returned) != 1 {
		p.wrong("the connection was returned %d times", len(p.returned))
		return
	}
	reason := p.returned[0]
	if err != nil && !errors.Is(err, reason) && !p.closedBeside() {
		p.wrong("Close says %v, and the connection is discarded for %v", err, reason)
	}
	if reason != nil && (reason.Error() == "" || strings.Contains(reason.Error(), "%!")) {
		p.wrong("no reason to discard: %q", reason)
	}
	if left := p.w.left(); reason == nil && len(left) > 0 {
		p.wrong("the next borrower finds %q", left)
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if p.w.sess.streams > 0 {
		p.wrong("%d streams are open", p.w.sess.streams)
	}
	if kept := p.w.mem.bytes.Load(); kept != 0 {
		p.wrong("%d bytes of batches are not released", kept)
	}
	if p.w.sessions > 0 && p.replace == 0 {
		p.countReplaced(reason)
		return
	}
	p.count(reason == nil)
	p.heard(reason)
}

// heard looks whether a failure that says nothing good of the connection was
// passed over: it is told, or costs the connection, or the session is proven
// afterwards, by a probe or by what the server says of itself.
func (p *play) heard(reason error) {
	w := p.w
	f, ok := w.faults[w.struck]
	if !ok || backend.FaultIn(f.error()).KeepsConn() || len(p.failed) > 0 || reason != nil {
		return
	}
	for _, trip := range w.log[w.struck:] {
		if trip == "Metadata" || strings.HasSuffix(trip, "|"+p.policy.probeSQL()) {
			return
		}
	}
	p.wrong("%q has failed with %v, and nobody was told", w.log[w.struck-1], f)
}

// guarded is a step whose caller goes on after a panic of the driver.
func (p *play) guarded(ctx context.Context, s step) (err error) {
	next, panicked := p.next, true
	defer func() {
		if !panicked {
			return
		}
		if v := recover(); v != errWorldPanic { //nolint:errorlint // itself
			panic(v)
		}
		err = &backend.Error{Op: s.name, Stage: backend.StageExecute, Fault: backend.FaultUnknown, Err: fmt.Errorf("%w: %w", backend.ErrCommitUnknown, errWorldPanic)}
		if strings.HasPrefix(s.name, "USE") || strings.HasPrefix(s.name, "SET") || s.name == "option catalog" {
			p.place = ""
		}
		for v := next + 1; v <= p.next; v++ {
			p.note(said{value: v, err: err})
		}
		switch {
		case s.name == "commit":
			_ = p.end("Commit", err)
		case s.name == "rollback":
			_ = p.end("Rollback", err)
		case s.name == "with transaction" && p.tx != nil:
			p.tx.end, p.tx.err, p.tx = "Commit", err, nil
		}
	}()
	err = s.do(ctx, p)
	panicked = false
	return err
}

// judge looks at the error of a call.
func (p *play) judge(ctx context.Context, name string, err error) {
	var e *backend.Error
	switch {
	case !errors.As(err, &e), e.Op == "" && e.Stage == backend.StageNone:
		p.wrong("%s fails with no *Error of a call: %v", name, err)
	case strings.Contains(err.Error(), "%!"), !strings.Contains(err.Error(), ":"):
		p.wrong("%s fails with %q", name, err)
	case ctx.Err() != nil && e.Fault == backend.FaultContext && !errors.Is(err, ctx.Err()):
		p.wrong("%s does not say that its context has ended: %v", name, err)
	}
	if p.replaced && p.firstErr == nil {
		p.firstErr = err
	}
}

// count compares what was said with what is stored.
func (p *play) count(reused bool) {
	check := func(v said, least, most int, why string) {
		if n := p.w.stored[v.value]; v.value > 0 && (n < least || n > most) {
			p.wrong("%d is stored %d times: %s (%v)", v.value, n, why, v.err)
		}
	}
	for _, v := range p.loose {
		switch {
		case v.err == nil:
			check(v, 1, 1, "the call succeeded")
		case backend.SafeToRetry(v.err):
			check(v, 0, 0, "the call may be repeated")
		case backend.FaultIn(v.err) == backend.FaultStatement && !errors.Is(v.err, backend.ErrSessionLost):
			check(v, 0, 0, "the server refused it")
		default:
			check(v, 0, 1, "the call failed")
		}
	}
	for _, tx := range p.txs {
		committed := tx.end == "Commit" && tx.err == nil
		unknown := tx.end != "" && errors.Is(tx.err, backend.ErrCommitUnknown)
		for _, v := range tx.values {
			var e *backend.Error
			sent := !errors.As(v.err, &e) || !e.Unsent && e.Fault != backend.FaultUnsupported
			switch {
			case v.undone:
				check(v, 0, 0, "it was rolled back to a savepoint")
			case committed && v.err == nil:
				check(v, 1, 1, "it was committed")
			case committed && sent:
				p.wrong("committed although a call had failed: %v", v.err)
			case unknown:
				check(v, 0, 1, "nobody knows")
			default:
				check(v, 0, 0, fmt.Sprintf("%q ended with: %v", tx.end, tx.err))
			}
		}
	}
	for v, place := range p.placed {
		if at, ran := p.w.places[v]; ran && reused && at != place {
			p.wrong("%d was stored at %s, and the caller believed to be at %s", v, at, place)
		}
	}
}

// batch is a batch of parameters or rows of the caller's.
func (p *play) batch(values ...int64) arrow.RecordBatch {
	b := array.NewInt64Builder(&p.w.mem)
	defer b.Release()
	b.AppendValues(values, nil)
	column := b.NewArray()
	defer column.Release()
	return array.NewRecordBatch(fakeSchema, []arrow.Array{column}, int64(len(values)))
}

// value takes note of a value that is to be stored, and of what the call says.
func (p *play) value(run func(v int) error) error {
	p.next++
	v := p.next
	if p.place != "" {
		p.placed[v] = p.place
	}
	err := run(v)
	p.note(said{value: v, err: err})
	return err
}

func (p *play) note(v said) {
	if p.tx == nil {
		p.loose = append(p.loose, v)
		return
	}
	p.tx.values = append(p.tx.values, v)
}

// read reads a result of so many rows.
func (p *play) read(res *QueryResult, err error, rows int) error {
	if err != nil {
		return err
	}
	defer res.Release()
	n := 0
	for res.Next() {
		n += int(res.RecordBatch().NumRows())
	}
	if err := res.Err(); err != nil {
		return err
	}
	if n != rows {
		p.wrong("%d rows of %d, and no error", n, rows)
	}
	return nil
}

// keep prepares a statement for runKept.
func (p *play) keep(ctx context.Context, sql string) error {
	q, err := p.s.PrepareQuery(ctx, sql)
	if err == nil {
		if p.kept == nil {
			p.kept = map[string]*PreparedQuery{}
		}
		p.kept[sql] = q
	}
	return p.other(err)
}

func (p *play) runKept(ctx context.Context, sql string, rows int) error {
	if p.kept[sql] == nil {
		return nil
	}
	res, err := p.kept[sql].Query(ctx)
	return p.other(p.read(res, err, rows))
}

// other notes the failure of a statement that stores nothing.
func (p *play) other(err error) error {
	if err != nil && p.tx != nil {
		p.note(said{err: err})
	}
	return err
}

func update(sql string) step {
	return step{sql, func(ctx context.Context, p *play) error {
		_, err := p.s.Update(ctx, sql)
		return p.other(err)
	}}
}

// move is an update after which the caller believes to be at place, or in the
// schema of the name.
func move(sql, place string) step {
	return step{sql, func(ctx context.Context, p *play) error {
		_, err := p.s.Update(ctx, sql)
		catalog, _, known := strings.Cut(p.place, ".")
		if p.place = place; !strings.Contains(place, ".") {
			p.place = catalog + "." + place
			known = known && err == nil
		} else {
			known = err == nil
		}
		if !known {
			p.place = ""
		}
		return p.other(err)
	}}
}

func query(sql string, rows int) step {
	return step{sql, func(ctx context.Context, p *play) error {
		res, err := p.s.Query(ctx, sql)
		return p.other(p.read(res, err, rows))
	}}
}

var (
	insertOne = step{"insert", func(ctx context.Context, p *play) error {
		return p.value(func(v int) error {
			_, err := p.s.Update(ctx, fmt.Sprintf("INSERT INTO t VALUES (%d)", v))
			return err
		})
	}}
	insertReturning = step{"insert returning", func(ctx context.Context, p *play) error {
		return p.value(func(v int) error {
			res, err := p.s.Query(ctx, fmt.Sprintf("INSERT INTO t VALUES (%d) RETURNING 1", v))
			return p.read(res, err, 1)
		})
	}}
	insertReturningClosed = step{"insert returning, closed", func(ctx context.Context, p *play) error {
		return p.value(func(v int) error {
			res, err := p.s.Query(ctx, fmt.Sprintf("INSERT INTO t VALUES (%d) RETURNING 1", v))
			if err != nil {
				return err
			}
			return res.Close()
		})
	}}
	bulk = step{"bulk", func(ctx context.Context, p *play) error {
		return p.value(func(v int) error {
			batch := p.batch(int64(v))
			defer batch.Release()
			_, err := p.s.UpdateWithRecordBatch(ctx, "INSERT INTO bulk.t VALUES (?)", batch)
			return err
		})
	}}
	prepared = step{"prepared", func(ctx context.Context, p *play) error {
		return p.value(func(v int) error {
			q, err := p.s.PrepareQuery(ctx, "INSERT INTO t SELECT ?")
			if err != nil {
				return err
			}
			batch := p.batch(int64(v))
			defer batch.Release()
			if _, err = q.Update(ctx, batch); err == nil {
				_ = q.Close(ctx)
			}
			return err
		})
	}}
	preparedKept = step{"prepared and kept", func(ctx context.Context, p *play) error {
		q, err := p.s.PrepareQuery(ctx, "SELECT 2")
		if err != nil {
			return p.other(err)
		}
		res, err := q.Query(ctx)
		return p.other(p.read(res, err, 2))
	}}
	withParams = step{"parameters", func(ctx context.Context, p *play) error {
		batch := p.batch(1)
		defer batch.Release()
		res, err := p.s.QueryWithParams(ctx, "SELECT 2", batch)
		return p.other(p.read(res, err, 2))
	}}
	letGo = step{"let go", func(ctx context.Context, p *play) error {
		res, err := p.s.Query(ctx, "SELECT 3")
		if err != nil {
			return p.other(err)
		}
		if !res.Next() {
			res.Release()
			return p.other(res.Err())
		}
		return p.other(res.Close())
	}}
	leftOpen = step{"left open", func(ctx context.Context, p *play) error {
		res, err := p.s.Query(ctx, "SELECT 3")
		if err == nil {
			p.open = append(p.open, res)
		}
		return p.other(err)
	}}
	oversleep = step{"oversleep", func(ctx context.Context, _ *play) error {
		<-ctx.Done()
		return &backend.Error{Op: "oversleep", Stage: backend.StageExecute, Fault: backend.FaultContext, Err: ctx.Err()}
	}}
	letGoMany = step{"let go of many", func(ctx context.Context, p *play) error {
		res, err := p.s.Query(ctx, "SELECT 1000")
		if err != nil {
			return p.other(err)
		}
		return p.other(res.Close())
	}}
	sleeps = step{"sleep", func(ctx context.Context, p *play) error {
		ctx, stop := context.WithTimeout(ctx, 100*time.Millisecond)
		defer stop()
		_, err := p.s.Update(ctx, "UPDATE sleep SET s = 10")
		return p.other(err)
	}}
	uncut = step{"NoCancel", func(ctx context.Context, p *play) error {
		res, err := p.s.QueryWithOptions(ctx, "SELECT 3", QueryOptions{NoCancel: true})
		return p.other(p.read(res, err, 3))
	}}
	uncutLetGo = step{"NoCancel, let go", func(ctx context.Context, p *play) error {
		res, err := p.s.QueryWithOptions(ctx, "SELECT 3", QueryOptions{NoCancel: true})
		if err == nil {
			err = res.Close()
		}
		return p.other(err)
	}}
	uncutInsert = step{"NoCancel insert", func(ctx context.Context, p *play) error {
		return p.value(func(v int) error {
			_, err := p.s.UpdateWithOptions(ctx, fmt.Sprintf("INSERT INTO t VALUES (%d)", v), QueryOptions{NoCancel: true})
			return err
		})
	}}
	watched = step{"watched", func(ctx context.Context, p *play) error {
		res, err := p.s.QueryWithOptions(ctx, "SELECT 2", QueryOptions{Progress: func(float64, bool) {}})
		return p.other(p.read(res, err, 2))
	}}
	preparedTwo = step{"prepared for two rows", func(ctx context.Context, p *play) error {
		q, err := p.s.PrepareQuery(ctx, "INSERT INTO t SELECT ?")
		if err != nil {
			return p.other(err)
		}
		err = p.value(func(v int) error {
			p.next++ // v and the next
			batch := p.batch(int64(v), int64(p.next))
			defer batch.Release()
			_, err := q.Update(ctx, batch)
			p.note(said{value: p.next, err: err})
			return err
		})
		if closed := q.Close(ctx); err == nil {
			err = closed // no statement, so no part of the transaction
		}
		return err
	}}
	ingest = step{"ingest", func(ctx context.Context, p *play) error {
		return p.value(func(v int) error {
			batch := p.batch(int64(v))
			defer batch.Release()
			rows, err := array.NewRecordReader(fakeSchema, []arrow.RecordBatch{batch})
			if err != nil {
				return err
			}
			defer rows.Release()
			_, err = p.s.Ingest(ctx, "t", rows, backend.IngestOptions{Temporary: v%2 == 0})
			return err
		})
	}}
	catalogue = step{"catalogue", func(ctx context.Context, p *play) error {
		res, err := p.s.Metadata(ctx, backend.MetadataRequest{Kind: backend.MetadataTables})
		return p.read(res, err, 2)
	}}
	prepareFirst  = step{"prepare the first", func(ctx context.Context, p *play) error { return p.keep(ctx, "SELECT 2") }}
	prepareSecond = step{"prepare the second", func(ctx context.Context, p *play) error { return p.keep(ctx, "SELECT 3") }}
	runFirst      = step{"run the first", func(ctx context.Context, p *play) error { return p.runKept(ctx, "SELECT 2", 2) }}
	runSecond     = step{"run the second", func(ctx context.Context, p *play) error { return p.runKept(ctx, "SELECT 3", 3) }}
	prepareInsert = step{"prepare an insert", func(ctx context.Context, p *play) error {
		q, err := p.s.PrepareQuery(ctx, "INSERT INTO t VALUES (9999)") // which is never run
		if err == nil {
			p.unrun = append(p.unrun, q)
		}
		return p.other(err)
	}}
	prepareValues = step{"prepare values", func(ctx context.Context, p *play) error { return p.keep(ctx, keptInsert) }}
	runValues     = step{"run values", func(ctx context.Context, p *play) error {
		if p.kept[keptInsert] == nil {
			return nil
		}
		return p.value(func(v int) error {
			batch := p.batch(int64(v))
			defer batch.Release()
			_, err := p.kept[keptInsert].Update(ctx, batch)
			return err
		})
	}}
	ping    = step{"ping", func(ctx context.Context, p *play) error { return p.s.Ping(ctx) }}
	options = step{"options", func(ctx context.Context, p *play) error { _, err := p.s.Options(ctx); return err }}
	begins  = step{"begin", func(ctx context.Context, p *play) error {
		err := p.s.BeginTransaction(ctx)
		if err == nil {
			p.tx = &txSaid{}
			p.txs = append(p.txs, p.tx)
		}
		return err
	}}
	commits   = step{"commit", func(ctx context.Context, p *play) error { return p.end("Commit", p.s.Commit(ctx)) }}
	rollsBack = step{"rollback", func(ctx context.Context, p *play) error { return p.end("Rollback", p.s.Rollback(ctx)) }}
	pause     = step{"pause", func(ctx context.Context, p *play) error {
		time.Sleep(time.Minute)
		if p.pauses++; p.pauses == p.replace {
			p.w.replaceSession()
			p.replaced = true
		}
		return nil
	}}
)

func (p *play) end(how string, err error) error {
	var e *backend.Error
	if p.tx == nil || errors.As(err, &e) && e.Unsent && backend.FaultIn(err) == backend.FaultContext {
		return err // nothing has ended
	}
	p.tx.end, p.tx.err = how, err
	if err == nil || how == "Commit" || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		p.tx = nil
	}
	return err
}

func setOption(key string, value any) step {
	return step{"option " + key, func(ctx context.Context, p *play) error {
		err := p.s.SetOption(ctx, key, value)
		if key == "catalog" {
			p.place = fmt.Sprint(value) + ".main"
			if err != nil || p.w.blind {
				p.place = ""
			}
		}
		return err
	}}
}

const keptInsert = "INSERT INTO t SELECT ?"

func savepointStep(name string) step {
	return step{"savepoint", func(ctx context.Context, p *play) error {
		err := p.s.Savepoint(ctx, name)
		if err == nil && p.tx != nil {
			p.tx.values = append(p.tx.values, said{value: -1})
		}
		return err
	}}
}

var releaseSavepoint = step{"release savepoint", func(ctx context.Context, p *play) error {
	return p.s.ReleaseSavepoint(ctx, "a")
}}

// rollbackTo is for the last savepoint.
var rollbackTo = step{"rollback to", func(ctx context.Context, p *play) error {
	err := p.s.RollbackTo(ctx, "a")
	if err == nil && p.tx != nil {
		for i := len(p.tx.values) - 1; i >= 0 && p.tx.values[i].value != -1; i-- {
			p.tx.values[i].undone = true
			if p.tx.values[i].value == 0 {
				p.tx.values[i].err = nil
			}
		}
	}
	return err
}}

func within(steps ...step) step {
	return step{"with transaction", func(ctx context.Context, p *play) error {
		tx := &txSaid{}
		err := p.s.WithTransaction(ctx, func(ctx context.Context, _ *SessionHandle) error {
			p.tx = tx
			p.txs = append(p.txs, tx)
			for _, s := range steps {
				if err := s.do(ctx, p); err != nil {
					return err
				}
			}
			return nil
		})
		tx.end, tx.err, p.tx = "Commit", err, nil
		return err
	}}
}

// programs are what sessions do. Every kind of call is in one of them, in a
// transaction and outside.
var programs = map[string][]step{
	"settings":                     {update("SET threads = 1"), insertOne, update("RESET zone"), update("SET fresh = 'x'")},
	"settings of its own":          {update("SET SESSION threads = 1"), insertOne, update("SET threads = 2"), update("SET SESSION zone = 'Tokyo'"), update("SET zone = 'Oslo'"), update("RESET SESSION threads")},
	"its own, and a pause":         {update("SET SESSION fresh = 'x'"), pause, insertOne, begins, update("SET SESSION zone = 'Oslo'"), pause, insertOne, rollsBack, query("SELECT 2", 2)},
	"the place":                    {move("USE other", "other.main"), insertOne, move("SET schema = 'own'", "own"), insertOne},
	"the search path":              {move("SET search_path = 'a.b'", "a.b"), insertOne},
	"temporary objects":            {update("CREATE TEMP TABLE a (i INT)"), update("CREATE TEMP VIEW v AS SELECT 1"), insertOne},
	"a temporary view":             {update("CREATE TEMP VIEW v AS SELECT 1")},
	"prepared names":               {update("PREPARE a AS SELECT 1"), update("PREPARE b AS SELECT 1"), update("DEALLOCATE a"), insertOne},
	"a pivot":                      {query("PIVOT t ON a USING sum(b)", 1), query("PIVOT t ON b USING sum(b)", 1)},
	"something unknown":            {update("ATTACH 'x.db'"), insertOne},
	"a script":                     {update("SET threads = 1; SET zone = 'Oslo'"), insertOne},
	"options":                      {setOption("catalog", "far"), insertOne, setOption("fresh", true), options, setOption("fresh", false)},
	"prepared":                     {prepared, preparedKept, insertOne, preparedKept},
	"parameters":                   {withParams, insertOne},
	"two statements":               {prepareFirst, runFirst, prepareSecond, runFirst, runSecond, insertOne},
	"a statement that is not run":  {prepareInsert, insertOne, prepareFirst, query("SELECT 2", 2), runFirst},
	"statements of a transaction":  {begins, insertOne, prepareInsert, prepareSecond, runSecond, insertOne, commits},
	"a read in its place":          {move("USE other", "other.main"), query("SELECT 2", 2), insertOne, query("SELECT 2", 2)},
	"bulk":                         {bulk, insertOne, bulk, insertOne},
	"bulk after USE":               {move("USE other", "other.main"), bulk, insertOne},
	"results":                      {query("SELECT 3", 3), letGo, insertReturning, insertReturningClosed, catalogue, ping},
	"ingest":                       {ingest, ingest, insertOne},
	"a transaction":                {begins, insertOne, insertOne, commits, insertOne},
	"a transaction rolled back":    {begins, insertOne, rollsBack, insertOne},
	"a transaction left open":      {insertOne, begins, insertOne, query("SELECT 2", 2)},
	"all calls of a transaction":   {begins, insertOne, query("SELECT 2", 2), letGo, catalogue, withParams, ping, commits, insertOne},
	"one for many transactions":    {prepareValues, begins, runValues, rollsBack, runValues, begins, runValues, prepareFirst, runFirst, commits, runFirst, insertOne},
	"changes of a transaction":     {begins, insertReturning, insertReturningClosed, prepared, ingest, commits, insertOne},
	"bulk in a transaction":        {begins, bulk, insertOne, commits, insertOne},
	"the place in a transaction":   {begins, move("USE other", "other.main"), commits, bulk, insertOne},
	"a setting read too late":      {begins, update("SET threads = 1"), commits, update("SET threads = 2"), insertOne},
	"an option in a transaction":   {begins, setOption("catalog", "far"), insertOne, commits, setOption("catalog", "near"), insertOne},
	"settings in a transaction":    {begins, update("SET threads = 1"), move("USE other", "other.main"), insertOne, commits, insertOne},
	"temporaries rolled back":      {begins, update("CREATE TEMP TABLE a (i INT)"), insertOne, rollsBack, insertOne},
	"savepoints":                   {begins, insertOne, savepointStep("a"), insertOne, rollbackTo, insertOne, commits, insertOne},
	"savepoint after a failure":    {begins, insertOne, savepointStep("a"), insertOne, update("BAD"), rollbackTo, insertOne, commits},
	"a failure in a transaction":   {begins, insertOne, update("BAD"), insertOne, commits, insertOne, begins, insertOne, commits},
	"WithTransaction":              {within(insertOne, insertOne), insertOne},
	"WithTransaction that fails":   {within(insertOne, update("BAD")), insertOne},
	"WithTransaction with a read":  {within(insertOne, letGo, query("SELECT 2", 2)), within(insertOne)},
	"WithTransaction left open":    {within(insertOne, leftOpen), insertOne},
	"WithTransaction that is busy": {within(insertOne, leftOpen, insertOne), insertOne},
	"WithTransaction too late":     {within(insertOne, oversleep), insertOne, commits},
	"WithTransaction late, open":   {within(insertOne, leftOpen, oversleep), insertOne},
	"a released savepoint":         {begins, insertOne, savepointStep("a"), insertOne, releaseSavepoint, insertOne, commits, insertOne},
	"NoCancel":                     {uncut, uncutLetGo, uncutInsert, watched, insertOne},
	"NoCancel in a transaction":    {begins, uncut, uncutLetGo, uncutInsert, watched, commits, insertOne},
	"many rows":                    {letGoMany, insertOne},
	"many rows in a transaction":   {begins, insertOne, letGoMany, insertOne, commits, insertOne},
	"a sleep":                      {sleeps, insertOne},
	"a sleep in a transaction":     {begins, insertOne, sleeps, insertOne, commits, insertOne},
	"a sleep before the rollback":  {begins, insertOne, sleeps, rollsBack, insertOne},
	"a sleep before the end":       {begins, insertOne, sleeps},
	"a sleep in WithTransaction":   {within(insertOne, sleeps), insertOne},
	"rows of parameters":           {preparedTwo, insertOne},
	"rows in a transaction":        {begins, preparedTwo, commits, preparedTwo, insertOne},
	"pauses":                       {insertOne, pause, insertOne},
	"pauses of a transaction":      {begins, insertOne, pause, insertOne, pause, query("SELECT 2", 2), commits, insertOne},
	"a pause before the commit":    {begins, insertOne, pause, commits, insertOne},
	"a pause before the rollback":  {begins, insertOne, pause, rollsBack, insertOne},
	"a pause with a setting":       {update("SET threads = 1"), pause, insertOne, query("SELECT 2", 2)},
	"a pause of a statement":       {preparedKept, pause, preparedKept, insertOne},
	"a pause and then a ping":      {update("SET threads = 1"), pause, ping, query("SELECT 2", 2)},
	"a pause and then a catalogue": {begins, insertOne, pause, catalogue, query("SELECT 2", 2), commits},
	"a pause and then options":     {preparedKept, pause, options, query("SELECT 2", 2)},
	"a statement, then a setting":  {prepareFirst, runFirst, pause, update("SET threads = 1"), runFirst, insertOne},
	"a pause behind a transaction": {begins, update("SET threads = 1"), insertOne, commits, query("SELECT 2", 2), pause, insertOne, query("SELECT 2", 2)},
	"a place, and a pause":         {begins, move("USE other", "other.main"), insertOne, commits, query("SELECT 2", 2), pause, insertOne},
	"a pause before a savepoint":   {begins, insertOne, savepointStep("a"), insertOne, pause, rollbackTo, insertOne, commits},
}

// servers are the kinds of them.
var servers = map[string]func(w *world){
	"plain":            func(*world) {},
	"forgiving":        func(w *world) { w.forgives, w.confirmsAborted = true, true },
	"forgiving, bare":  func(w *world) { w.forgives, w.bare, w.confirmsAborted = true, true, true },
	"forgiving, blind": func(w *world) { w.forgives, w.blind, w.emptyFirst = true, true, true },
	"moving":           func(w *world) { w.forgives, w.bulkMoves, w.confirmsAborted = true, true, true },
	"moving, pathless": func(w *world) { w.forgives, w.bulkMoves, w.pathless = true, true, true },
	"binding":          func(w *world) { w.forgives, w.bulkMoves, w.binds = true, true, true },
	"confirming":       func(w *world) { w.confirmsAborted = true },
	"blind":            func(w *world) { w.blind = true },
	"cancelling":       func(w *world) { w.cancels, w.confirmsAborted, w.emptyFirst = true, true, true },
}

// observe counts what the pool would be told.
func (p *play) observe() {
	p.seen = map[string]int{}
	see := func(what string) {
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		p.seen[what]++
	}
	o := &p.policy.Observe
	o.Cancelled = func(_ string, report cancel.Report) {
		see("cancelled")
		if report.Safe() {
			see("confirmed by " + report.ConfirmedBy)
		}
	}
	o.RolledBack = func() { see("rolled back") }
	o.Reset = func(_ time.Duration, err error) {
		if see("reset"); err != nil {
			see("reset in vain")
		}
	}
}

// scene is a program on a server, after others have used the pool.
type scene struct {
	program string
	server  string
	single  bool // by a handle for a single call
	warm    bool // the program has run once before
	reset   SessionReset
	faults  map[int]worldFault
	replace int

	replacedBefore []int // round trips
	counts         bool

	ends map[int]callerEnd // round trips in which the context of their caller ends
	fail []string          // the steps that fail without that
}

// perform runs a scene. It returns what went wrong, and how many round trips and
// pauses there were.
func (sc scene) perform(t *testing.T) (p *play, trips int) {
	steps := programs[sc.program]
	synctest.Test(t, func(t *testing.T) {
		life, stop := context.WithCancel(t.Context())
		defer stop()
		policy := &Policy{Target: "world:1", OwnerContext: life, OnReturn: sc.reset}
		w := newWorld()
		servers[sc.server](w)
		one := func() *play {
			p := &play{w: w, policy: policy, place: "lake.main", placed: map[int]string{}}
			p.observe()
			handle := New
			if sc.single {
				handle = NewStateless
			}
			p.s = handle(w.conn(), policy, func(err error) { p.returned = append(p.returned, err) })
			return p
		}
		if sc.warm {
			p = one()
			p.run(steps)
			w.stored, w.sess, w.log, w.trips, w.lost = map[int]int{}, newWorldSession(), nil, 0, nil
			w.ctxs, w.places, w.ran, w.proof, w.unproven = nil, map[int]string{}, map[int]worldRun{}, 0, 0
		}
		w.faults, w.ends = sc.faults, sc.ends
		w.counts = sc.counts
		w.replacedBefore = make(map[int]bool)
		for _, at := range sc.replacedBefore {
			w.replacedBefore[at] = true
		}
		p = one()
		p.replace, p.mayFail, p.endOwner = sc.replace, sc.fail, stop
		p.run(steps)
		trips = w.trips
		synctest.Wait()
	})
	return p, trips
}

// Whatever fails at whichever round trip: nothing that was said to be stored is
// missing or stored twice, nothing else is stored, no call outlasts its context,
// and the next borrower finds the session as it was. Each program is tried on
// each server without a failure; the failures go round the servers, and
// PROVE_SEED says with which they begin.
func TestNoFailureOfAnyRoundTripBreaksWhatWasSaid(t *testing.T) {
	turn, _ := strconv.Atoi(os.Getenv("PROVE_SEED"))
	kinds := slices.Sorted(maps.Keys(servers))
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		for _, server := range kinds {
			sc := scene{program: name, server: server, warm: true}
			p, trips := sc.perform(t)
			report(t, sc, p)
			for at := 1; at <= trips; at++ {
				for _, f := range worldFaults {
					if turn++; turn%23 == 0 { // in the end with every fault, of which there are 12
						sc.faults, sc.warm = map[int]worldFault{at: f}, turn%3 == 0
						p, _ := sc.perform(t)
						report(t, sc, p)
					}
				}
			}
		}
	}
}

// A server that forgets an idle session goes on with another one. Nothing is
// stored outside of the transaction that it belonged to, and a handle that has
// something to lose says that its session is gone.
func TestAReplacedSessionIsNoticedInEveryProgram(t *testing.T) {
	noticed := 0
	for name := range programs {
		for server := range servers {
			sc := scene{program: name, server: server}
			whole, _ := sc.perform(t)
			for turn := range 4 * whole.pauses {
				sc.replace, sc.counts, sc.warm = 1+turn/4, turn%2 == 0, turn/2%2 == 0
				p, _ := sc.perform(t)
				report(t, sc, p)
				if p.firstErr == nil {
					if p.w.forgives && strings.HasPrefix(name, "a pause and then") {
						t.Fatalf("%s, %s: what the session had is gone, and nobody was told: %q", name, server, p.w.log)
					}
					continue
				}
				noticed++
				if p.w.forgives && !p.w.bare && !errors.Is(p.firstErr, backend.ErrSessionLost) {
					t.Fatalf("%s, %s, replaced in pause %d: %v", name, server, sc.replace, p.firstErr)
				}
			}
		}
	}
	if noticed < 20 {
		t.Fatalf("noticed %d times only", noticed)
	}
}

// singleCalls are those of a pool.
var singleCalls = []step{
	update("SET threads = 1"), move("USE other", "other.main"), update("CREATE TEMP TABLE a (i INT)"), update("PREPARE a AS SELECT 1"),
	query("PIVOT t ON a USING sum(b)", 1), withParams, letGo, insertOne, insertReturning, insertReturningClosed, ingest, catalogue, ping, bulk,
}

// A call of the pool has no session to lose.
func TestNoFailureOfASingleCallBreaksWhatWasSaid(t *testing.T) {
	for _, call := range singleCalls {
		name := "a single call: " + call.name
		programs[name] = []step{call}
		for server := range servers {
			for _, reset := range []SessionReset{ResetAuto, ResetSQL("RESET ALL"), ResetDiscard} {
				sc := scene{program: name, server: server, single: true, reset: reset}
				whole, trips := sc.perform(t)
				report(t, sc, whole)
				for at := 1; at <= trips; at++ {
					f := worldFaults[(at+len(server))%len(worldFaults)]
					sc.faults = map[int]worldFault{at: f}
					p, _ := sc.perform(t)
					report(t, sc, p)
				}
			}
		}
		delete(programs, name)
	}
}

func report(t *testing.T, sc scene, p *play) {
	t.Helper()
	if len(p.broken) > 0 {
		t.Fatalf("%s, %s, warm %t, faults %v, replaced in pause %d, before %d, contexts that end %v: %s\nround trips: %q", sc.program, sc.server, sc.warm, sc.faults, sc.replace, sc.replacedBefore, sc.ends, strings.Join(p.broken, "; "), p.w.log)
	}
}
