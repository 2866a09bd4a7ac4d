package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/cancel"
	"github.com/flightpool/flightpool/flightpool"
)

// prepared binds a parameter.
func (e *exam) prepared(ctx context.Context) {
	const subject = "parameters"
	pool, _, err := e.pool(ctx, nil)
	if err != nil {
		e.unopened(subject, err)
		return
	}
	defer closePool(ctx, pool)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var first error
	for _, sql := range []string{"SELECT ? AS x", "SELECT CAST(? AS BIGINT) AS x", "SELECT CAST($1 AS BIGINT) AS x", "VALUES CAST(? AS BIGINT)"} {
		var value any
		if err := pool.QueryRow(ctx, sql, int64(42)).Scan(&value); err != nil {
			if first = cmp.Or(first, e.heard(err)); !refused(err) {
				break
			}
			continue
		}
		if text := fmt.Sprint(value); text == "42" {
			e.found(subject, yes, "as in %s", sql)
		} else {
			e.found(subject, "wrong", "%s gives %s for 42", sql, text)
		}
		return
	}
	e.failed(subject, first)
}

// slowQueries take seconds on some servers, and fail soon on others. The recursion, for
// servers that have none of the functions before it, is the last: it takes a quarter of an
// hour of DuckDB, and longer of DataFusion, where it is not stopped.
var slowQueries = []string{
	"SELECT sleep('20s')",
	"SELECT count(*) FROM generate_series(1, 1000000) AS a(x), generate_series(1, 60000) AS b(y) WHERE x % 7 = y % 5",
	"SELECT count(*) FROM range(1000000) a, range(60000) b WHERE a.id % 7 = b.id % 5",
	"SELECT sleep(3), sleep(3), sleep(3)",
	"WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 50000000) SELECT count(*) FROM c",
}

// A slow query runs for cutAfter before it is stopped, which may take cancelBudget.
const (
	cutAfter     = time.Second
	cancelBudget = 5 * time.Second

	// What answers later than this may have come to its end by itself: a longer one is tried.
	atOnce = 250 * time.Millisecond
)

// cancelling stops statements, until that is confirmed: a server that cannot be
// asked to is known only after some.
func (e *exam) cancelling(ctx context.Context) {
	const subject = "cancel"
	reports := make(chan cancel.Report, 1)
	pool, _, err := e.pool(ctx, func(c *flightpool.Config, _ *tap) {
		c.MaxSize, c.Cancel.Budget = 1, cancelBudget
		c.Hooks.Cancelled = func(_ string, r cancel.Report) {
			select {
			case reports <- r:
			default:
			}
		}
	})
	if err != nil {
		e.unopened(subject, err)
		return
	}
	defer closePool(ctx, pool)
	slow := slowQueries
	if e.Slow != "" {
		slow = []string{e.Slow}
	}
	var last cancel.Report
	tried := false
	for attempts := 0; len(slow) > 0 && attempts < 4; {
		if !e.cut(ctx, pool, slow[0]) {
			if e.silence != nil {
				return
			}
			slow = slow[1:]
			continue
		}
		attempts++
		select {
		case last = <-reports:
			tried = true
		case <-time.After(patience):
			e.found(subject, unknown, "a cancel did not end")
			return
		case <-ctx.Done():
			return
		}
		if last.Confirmed && last.Elapsed < atOnce {
			break
		}
		if last.Elapsed >= atOnce && last.Elapsed < cancelBudget {
			slow, attempts = slow[1:], 0
		}
	}
	if last.Confirmed { // also late, where no longer query says otherwise
		e.found(subject, yes, "%s", last)
		return
	}
	if !tried {
		e.found(subject, unknown, "no query takes long enough; name one")
		return
	}
	verdict := "unconfirmed" // there is no session that shows it, or it runs others beside it
	if last.Elapsed >= cancelBudget {
		verdict = no // the session was busy all the time
	}
	e.found(subject, verdict, "%s; such a statement costs its connection", last)
}

// cut runs a query for a moment, and reports whether its deadline ended it. The moment
// begins when there is a connection, however long that takes.
func (e *exam) cut(ctx context.Context, pool *flightpool.FlightSQLPool, sql string) bool {
	opening, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := pool.Ping(opening); err != nil {
		e.silence = cmp.Or(e.silence, err)
		return false
	}
	result, err := pool.QueryWithOptions(ctx, sql, flightpool.QueryOptions{Timeout: cutAfter, Route: flightpool.RouteQuery})
	if err == nil {
		for result.Next() { // only the end matters
		}
		err = result.Close()
	}
	stopped := errors.Is(err, context.DeadlineExceeded)
	if !stopped && backend.FaultIn(err) != backend.FaultLimit { // which a query may be too large for
		_ = e.heard(err)
	}
	return stopped && ctx.Err() == nil
}

// ingestion loads three rows, and counts them.
func (e *exam) ingestion(ctx context.Context) {
	const subject = "ingestion"
	if e.ReadOnly {
		e.found(subject, unknown, "it takes a table to find out")
		return
	}
	l, err := e.connect(ctx, nil)
	if err != nil {
		e.unopened(subject, err)
		return
	}
	defer l.close(ctx)
	for _, temporary := range []bool{true, false} {
		table := e.name()
		var n int64
		if n, err = ingest(ctx, l, table, temporary); err != nil {
			if !refused(err) {
				e.drop(ctx, l, table) // the server may have made it
				break
			}
			continue
		}
		stored, unread := l.count(ctx, table, backend.Call{})
		isThere := false
		if unread != nil {
			_, again := ingest(ctx, l, table, temporary)
			isThere = again != nil // as a table is that cannot be made twice
		}
		if !temporary {
			e.drop(ctx, l, table)
		}
		switch {
		case stored == 3:
			e.found(subject, yes, "")
		case isThere:
			e.found(subject, unknown, "the server says that %d rows of 3 are stored, and they cannot be read: %s", n, firstLine(unread))
		default:
			e.found(subject, "not honest", "the server says that %d rows of 3 are stored, and has %d", n, stored)
		}
		return
	}
	e.failed(subject, err)
}

func ingest(ctx context.Context, l *link, table string, temporary bool) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	b.AppendValues([]int64{1, 2, 3}, nil)
	column := b.NewArray()
	defer column.Release()
	schema := arrow.NewSchema([]arrow.Field{{Name: "i", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)
	batch := array.NewRecordBatch(schema, []arrow.Array{column}, 3)
	defer batch.Release()
	rows, err := array.NewRecordReader(schema, []arrow.RecordBatch{batch})
	if err != nil {
		return 0, err
	}
	defer rows.Release()
	n, err := l.conn.Ingest(ctx, rows, backend.IngestOptions{Table: table, Mode: backend.IngestCreate, Temporary: temporary}, backend.Call{})
	return n, l.exam.heard(err)
}

// requests finds out how large a statement may be, up to what a pool sends.
func (e *exam) requests(ctx context.Context) {
	const subject = "largest request"
	l, err := e.connect(ctx, nil)
	if err != nil {
		e.unopened(subject, err)
		return
	}
	defer func() { l.close(ctx) }()
	const headroom, largest = 128 << 10, 4 << 20
	taken := 0
	for size := 1 << 20; size <= largest; size *= 2 {
		text := strings.Repeat("x", size-headroom)
		value, err := l.query(ctx, "SELECT '"+text+"' AS x", backend.Call{})
		if err != nil || value != text {
			if e.silence != nil && (!e.again || !e.reachable(ctx)) {
				return
			}
			e.found(subject, fmt.Sprintf("%d MiB", taken>>20), "one of %d MiB is refused: %s", size>>20, firstLine(err))
			return
		}
		taken = size
	}
	e.found(subject, fmt.Sprintf("%d MiB", taken>>20), "or more: a pool sends no larger one")
}

// failed tells of a subject of which no try succeeded: the server refused it, or
// nothing is known.
func (e *exam) failed(subject string, err error) {
	verdict := unknown
	if refused(err) {
		verdict = no
	}
	e.found(subject, verdict, "%s", firstLine(err))
}

// unopened tells of a subject for which there was no connection, whatever the server said to that.
func (e *exam) unopened(subject string, err error) { e.found(subject, unknown, "%s", firstLine(err)) }

// refused reports whether the server has refused what was asked, and not the connection for it.
func refused(err error) bool {
	var known *flightpool.Error
	opening := errors.As(err, &known) && known.Stage >= backend.StageAcquire && known.Stage <= backend.StageProbe
	return isWord(err) && !opening
}

// isWord reports whether the server has answered, and with a refusal: of a
// handle that it gave out just before, too.
func isWord(err error) bool {
	fault := backend.FaultIn(err)
	return fault == backend.FaultStatement || fault == backend.FaultUnsupported || fault == backend.FaultSession
}

func firstLine(err error) string {
	if err == nil {
		return "the answer is another"
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return strings.ToValidUTF8(line[:min(len(line), 200)], "")
}
