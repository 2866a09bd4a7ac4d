package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/cancel"
	"github.com/flightpool/flightpool/cmd/flightpool/internal/output"
	"github.com/flightpool/flightpool/flightpool"
)

// A shell runs statements, one at a time, all on one session as long as it lives.
type shell struct {
	*app
	pool    *flightpool.FlightSQLPool
	server  string // for the prompt
	session *flightpool.SessionHandle
	tx      txState
	halted  *halt                         // nil: statements are run
	stopped atomic.Pointer[cancel.Report] // of the latest statement that was stopped

	format   output.Format
	route    flightpool.Route
	timing   bool
	out      *sink
	gave     bool   // a statement has given a result
	last     string // the latest statement, for \watch
	terminal *terminal
	running  int    // scripts, of which one runs the next
	onChange func() // after a statement that may have changed tables
}

// acquire gives the session, or a new one after the last was lost.
func (s *shell) acquire(ctx context.Context) (*flightpool.SessionHandle, error) {
	if s.session == nil {
		session, err := s.pool.AcquireSession(ctx)
		if err != nil {
			return nil, err
		}
		s.session = session
	}
	return s.session, nil
}

// statement runs one statement and prints what it answers.
func (s *shell) statement(ctx context.Context, sql string) error {
	ctx, stop := s.interruptible(ctx)
	defer stop()
	s.stopped.Store(nil)
	if s.halted != nil {
		return s.whileHalted(ctx, sql)
	}
	began := time.Now()
	session, err := s.acquire(ctx)
	changes := false
	if err == nil {
		var done bool
		if done, err = s.control(ctx, session, sql); !done {
			s.last, changes = sql, mayChange(sql)
			err = s.query(ctx, session, sql, began)
			err = errors.Join(err, s.withPager(ctx))
		}
	}
	if err != nil {
		return s.failed(ctx, sql, err, changes)
	}
	if errors.Is(context.Cause(ctx), errInterrupted) { // while its rows were printed, for example
		return &failure{exitInterrupted, fmt.Errorf("%w: the statement had ended on the server", errInterrupted)}
	}
	if s.timing {
		fmt.Fprintf(s.err, "time: %s\n", round(time.Since(began)))
	}
	return nil
}

// withPager is the interruption that has ended the pager, which had it before this
// process: the signal is on its way, and none to the prompt.
func (s *shell) withPager(ctx context.Context) error {
	if !s.out.interrupted {
		return nil
	}
	s.out.interrupted = false
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Second): // it was for the pager alone
		return nil
	}
}

// query runs a statement that is not of transactions.
func (s *shell) query(ctx context.Context, session *flightpool.SessionHandle, sql string, began time.Time) (err error) {
	progress := s.terminal.progress(began)
	defer progress.stop()
	result, err := session.QueryWithOptions(ctx, sql, flightpool.QueryOptions{Route: s.route, Progress: progress.report()})
	if err != nil {
		return err
	}
	defer func() {
		if closed := result.Close(); err == nil {
			err = closed
		}
	}()
	if s.onChange != nil && result.Schema().NumFields() == 0 {
		s.onChange()
	}
	defer func() { err = errors.Join(err, s.out.endResult()) }()
	rows, err := s.print(result, progress)
	if errors.Is(err, errPagerLeft) {
		return nil
	}
	progress.stop()
	if err == nil && s.format == output.Table {
		s.sum(result, rows, round(time.Since(began)))
	}
	return err
}

// sum is the line below a table, or that of a statement without rows.
func (s *shell) sum(result *flightpool.QueryResult, rows int64, took time.Duration) {
	if result.Schema().NumFields() > 0 {
		s.tell("(%s, %s)", count(rows, "row"), took)
	} else if n, known := result.RowsAffected(); known {
		s.tell("OK, %s affected (%s)", count(n, "row"), took)
	} else {
		s.tell("OK (%s)", took)
	}
}

// print writes the rows of a result.
func (s *shell) print(result *flightpool.QueryResult, progress *progress) (rows int64, err error) {
	if result.Schema().NumFields() == 0 {
		for result.Next() { // a result without columns has no rows to print
		}
		return 0, result.Err()
	}
	w, err := s.out.begin(s.format, progress)
	if err != nil {
		return 0, err
	}
	s.gave = true
	writer, err := output.New(s.format, w, result.Schema())
	if err != nil {
		return 0, err
	}
	for result.Next() {
		batch := result.RecordBatch()
		rows += batch.NumRows()
		progress.rows.Add(batch.NumRows())
		if err := writer.Write(batch); err != nil {
			return rows, err
		}
	}
	if err := result.Err(); err != nil {
		return rows, err
	}
	return rows, s.out.end(writer)
}

// failed finds out what a failed statement, or a question without one, has left of the
// session, and makes the error of it.
func (s *shell) failed(ctx context.Context, sql string, err error, changes bool) error {
	interrupted, cause := isInterruption(ctx, err), err
	had := s.tx
	mayBeStored := changes && had == txNone
	if had == txOpen && abortsTx(sql, err) {
		s.tx = txAborted
	}
	if interrupted {
		err = s.ask(ctx)
	}
	ended := err != nil && endsSession(err) && s.session != nil
	if ended {
		_ = s.session.Close() // it is lost
		s.session, s.tx, s.halted = nil, txNone, nil
		note := "; its temporary tables and settings are gone"
		if had != txNone {
			note = "; its transaction is not stored unless the error leaves that open, and temporary tables and settings are gone"
		}
		err = fmt.Errorf("%w\nthe session has ended%s; the next statement begins another", err, note)
	}
	if h := halts(sql, had, ended, cause); h != nil {
		s.tx, s.halted = txAborted, h
		if err != nil && s.app.prompt {
			err = fmt.Errorf("%w\nROLLBACK first: what is entered before is not run, %s", err, h)
		}
	}
	if interrupted {
		return &failure{exitInterrupted, fmt.Errorf("%w: %s", errInterrupted, s.howStopped(cause, err, mayBeStored))}
	}
	return err
}

// ask waits for the cancel of a statement, and says whether the session is still there.
func (s *shell) ask(ctx context.Context) error {
	if s.session == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err := s.session.Ping(ctx)
	if err != nil && !endsSession(err) {
		return nil // in an aborted transaction, for example
	}
	return err
}

// howStopped says what became of the statement on the server. A COMMIT is never stopped.
func (s *shell) howStopped(cause, lost error, mayBeStored bool) string {
	var text string
	switch report := s.stopped.Load(); {
	case errors.Is(cause, flightpool.ErrCommitUnknown):
		text = "the server was left to commit; whether the transaction is stored is not known"
	case report == nil && unsent(cause):
		text = "nothing ran on the server"
	case report == nil:
		text = "the server was not waited for; it may have carried the statement out"
	case report.Confirmed:
		text = fmt.Sprintf("the statement was stopped on the server (%s, %s)", report.ConfirmedBy, round(report.Elapsed))
		if mayBeStored { // the rows of a RETURNING, for one, come once they are
			text += "; what it had changed by then may be stored"
		}
	default:
		text = "the server did not confirm that the statement has stopped"
	}
	switch {
	case s.halted != nil && s.halted.isOpen:
		text += `; \rollback ends the transaction`
	case s.tx == txAborted:
		text += `; the transaction is rolled back, \rollback ends it`
	}
	if lost != nil {
		text += "; the session has ended, with its temporary tables and settings"
	}
	return text
}

func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// round leaves a duration three digits or so.
func round(d time.Duration) time.Duration {
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond)
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Microsecond)
}
