package doctor

import (
	"cmp"
	"context"
	"strings"

	"github.com/flightpool/flightpool/backend"
)

// transactions finds out whether what the server says of transactions is so.
func (e *exam) transactions(ctx context.Context) {
	const subject = "transactions"
	l, err := e.connect(ctx, nil)
	if err != nil {
		e.found(subject, unknown, "%v", err)
		return
	}
	defer l.close(ctx)
	id, err := l.begin(ctx)
	switch {
	case err != nil && backend.FaultIn(err) == backend.FaultUnsupported:
		e.found(subject, no, "the server has none")
		return
	case err != nil:
		e.found(subject, unknown, "the begin fails: %v", err)
		return
	}
	var lies []string
	wrong := []byte(id)
	wrong[len(wrong)-1] ^= 1
	if _, err := l.query(ctx, e.probe, backend.Call{Tx: backend.TxID(wrong)}); err == nil {
		lies = append(lies, "a statement of an unknown transaction runs")
	}
	_ = l.end(ctx, id, false) // nothing was done
	if refuses, err := l.refusesUnknown(ctx); err == nil && !refuses {
		lies = append(lies, "the end of an unknown transaction succeeds")
	}
	if e.ReadOnly {
		e.verdict(lies, unknown, "it takes a table to find out more")
		return
	}
	table, err := e.temporary(ctx, l)
	if err != nil {
		e.verdict(lies, unknown, "no temporary table can be made to find out more")
		return
	}
	more, err := e.outcomes(ctx, l, table)
	lies = append(lies, more...)
	if err != nil {
		e.verdict(lies, unknown, "a transaction that should succeed fails: "+firstLine(err))
		return
	}
	more, isolated := e.isolation(ctx, l)
	lies = append(lies, more...)
	e.verdict(lies, "honest", isolated)
}

func (e *exam) verdict(lies []string, otherwise, detail string) {
	if len(lies) > 0 {
		e.found("transactions", "not honest", "%s; the pool finds lost ones out before COMMIT", strings.Join(lies, "; "))
		return
	}
	e.found("transactions", otherwise, "%s", detail)
}

// outcomes compares what the ends of transactions say with what is stored. Its
// error is that of a statement or an end which should succeed.
func (e *exam) outcomes(ctx context.Context, l *link, table string) (lies []string, err error) {
	inTx := func(statements []string, commit bool) (failed, ended error) {
		id, err := l.begin(ctx)
		if err != nil {
			return err, err
		}
		for _, sql := range statements {
			if err := e.change(ctx, l, sql, backend.Call{Tx: id}); err != nil {
				failed = err
			}
		}
		return failed, l.end(ctx, id, commit)
	}
	insert := func(value string) string { return "INSERT INTO " + table + " VALUES (" + value + ")" }
	failed, err := inTx([]string{insert("1")}, false)
	if failed != nil || err != nil {
		return nil, cmp.Or(err, failed)
	}
	rows, err := l.count(ctx, table, backend.Call{})
	if err != nil {
		return nil, err
	} else if rows != 0 {
		lies = append(lies, "a rollback undoes nothing")
	}
	failed, err = inTx([]string{insert("2")}, true)
	if failed != nil || err != nil {
		return lies, cmp.Or(err, failed)
	}
	before, err := l.count(ctx, table, backend.Call{})
	if err != nil {
		return lies, err
	} else if before-rows != 1 {
		lies = append(lies, "a commit stores nothing")
	}
	failed, err = inTx([]string{insert("3"), insert("3")}, true) // the key is there already
	if failed == nil || err != nil {
		return lies, nil // an aborted transaction's commit may well fail
	}
	if rows, err = l.count(ctx, table, backend.Call{}); err == nil && rows == before {
		lies = append(lies, "the commit of an aborted transaction succeeds and stores nothing")
	}
	return lies, err
}

// isolation looks at a transaction from another connection.
func (e *exam) isolation(ctx context.Context, l *link) (lies []string, seen string) {
	const unseen = "what other connections see of it could not be found out"
	table := e.name()
	if err := e.change(ctx, l, "CREATE TABLE "+table+" (i BIGINT)", backend.Call{}); err != nil && refused(err) {
		return nil, unseen
	}
	defer e.drop(ctx, l, table)
	other, err := e.connect(ctx, nil)
	if err != nil {
		return nil, unseen
	}
	defer other.close(ctx)
	if rows, err := other.count(ctx, table, backend.Call{}); err != nil || rows != 0 {
		return nil, unseen // a database of its own
	}
	id, err := l.begin(ctx)
	if err != nil {
		return nil, unseen
	}
	err = e.change(ctx, l, "INSERT INTO "+table+" VALUES (1)", backend.Call{Tx: id})
	silence := e.silence
	during, _ := other.count(ctx, table, backend.Call{}) // may be refused, or wait, while another changes it
	e.silence = silence
	if ended := l.end(ctx, id, true); err != nil || ended != nil {
		return nil, unseen
	}
	after, err := other.count(ctx, table, backend.Call{})
	if err != nil {
		return nil, unseen
	} else if after != 1 {
		lies = append(lies, "what was committed is not seen by another connection")
	}
	if during > 0 {
		lies = append(lies, "what is not committed is seen by another connection")
	}
	return lies, "another connection sees it once it is committed"
}

// begin, end and refusesUnknown are the connection's, with the patience of one try.

func (l *link) begin(ctx context.Context) (backend.TxID, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	id, err := l.conn.Begin(ctx)
	return id, l.exam.heard(err)
}

func (l *link) end(ctx context.Context, id backend.TxID, commit bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return l.exam.heard(l.conn.EndTx(ctx, id, commit))
}

func (l *link) refusesUnknown(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	refuses, err := l.conn.RejectsUnknownTx(ctx)
	return refuses, l.exam.heard(err)
}
