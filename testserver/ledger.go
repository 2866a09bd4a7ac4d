package testserver

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Ledger is the server's own account of what happened: the oracle that tests
// of clients are checked against. Read it at any time, from any goroutine.
//
// A figure changes before the client can know of the event: once a client has
// the reply or the end of a stream, the ledger shows it.
type Ledger struct {
	mu      sync.Mutex // guards everything below
	changed sync.Cond  // woken by every change
	now     Snapshot
	// INVARIANT: statements are in the order of their start; the first has
	// the id dropped+1. At most keepStatements are kept.
	statements []Statement
	dropped    int
	cancels    []Cancel
}

const keepStatements = 20_000

func newLedger() *Ledger {
	l := &Ledger{}
	l.changed.L = &l.mu
	return l
}

// Snapshot is the state of a server at one moment.
type Snapshot struct {
	Conns, ConnsPeak, ConnsOpened          int // transport connections
	Sessions, SessionsPeak, SessionsOpened int
	SessionsEvicted                        int // by expiry or Faults.EvictSessions
	Handshakes                             int // that were granted

	Queued               int // statements waiting for their session
	Running, RunningPeak int // statements in the engine now
	Executed             int // statements that the engine was given, ever
	Streams              int // DoGet calls under way
	Transactions         int // open, by action or by SQL
	Prepared             int // prepared statements open
	Tickets              int // made and not yet redeemed
	Cancels              int // cancel requests seen, whatever came of them
	Refused              int // sessions, connections and RPCs turned away
}

// Idle reports whether nothing runs, streams or holds a transaction.
func (s Snapshot) Idle() bool {
	return s.Queued == 0 && s.Running == 0 && s.Streams == 0 && s.Transactions == 0
}

func (s Snapshot) String() string {
	return fmt.Sprintf("connections %d (peak %d, opened %d), sessions %d (peak %d, opened %d, evicted %d), "+
		"statements running %d (peak %d, executed %d), queued %d, streams %d, transactions %d, prepared %d, cancels %d, refused %d",
		s.Conns, s.ConnsPeak, s.ConnsOpened, s.Sessions, s.SessionsPeak, s.SessionsOpened, s.SessionsEvicted,
		s.Running, s.RunningPeak, s.Executed, s.Queued, s.Streams, s.Transactions, s.Prepared, s.Cancels, s.Refused)
}

// Statement is one execution of one statement by the engine. A statement that
// the server runs twice, as some do, is there twice.
type Statement struct {
	ID      int // from 1, in the order of their start
	SQL     string
	Kind    Kind
	RPC     string // that it was run for, for example "DoGet"
	Session int    // numbers of the server, from 1, never used again
	Tx      string // the transaction that the client named
	Peer    string // the client's address
	Began   time.Time
	Took    time.Duration // so far, while it runs
	State   State
	Err     error // why it failed
}

// Kind is what a statement was sent as.
type Kind uint8

// Kinds of statements.
const (
	KindQuery Kind = iota
	KindUpdate
	KindIngest
	KindBegin
	KindCommit
	KindRollback
	KindSavepoint
)

func (k Kind) String() string {
	return [...]string{"query", "update", "ingest", "begin", "commit", "rollback", "savepoint"}[k]
}

// State is where a statement is or how it ended.
type State uint8

// States of a statement.
const (
	Running     State = iota
	Done              // to its end
	Failed            // with an error of its own
	Interrupted       // by a cancel, the end of its RPC or of the server
)

func (s State) String() string {
	return [...]string{"running", "done", "failed", "interrupted"}[s]
}

// Cancel is a request to stop something, sent as an action.
type Cancel struct {
	Action   string
	Peer     string // where it came from
	Identity string // the session key that it came with
	Session  int    // of the statement that it stopped, 0 if none
	Answer   string // the status, or the code of the error
}

// Snapshot returns the figures of this moment.
func (l *Ledger) Snapshot() Snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// Statements returns the statements executed, oldest first; of very many only
// the latest 20,000.
func (l *Ledger) Statements() []Statement {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Clone(l.statements)
	for i := range all {
		if all[i].State == Running {
			all[i].Took = time.Since(all[i].Began)
		}
	}
	return all
}

// Executions returns those of Statements whose text is sql.
func (l *Ledger) Executions(sql string) []Statement {
	return slices.DeleteFunc(l.Statements(), func(s Statement) bool { return s.SQL != sql })
}

// Cancels returns the cancel requests seen, oldest first.
func (l *Ledger) Cancels() []Cancel {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.cancels)
}

// Wait returns once ok holds, or with ctx's error and the last snapshot. It
// does not poll: ok is called at each change, under the ledger's lock, so it
// must not call the ledger.
func (l *Ledger) Wait(ctx context.Context, ok func(Snapshot) bool) error {
	stop := context.AfterFunc(ctx, func() { l.update(func(*Snapshot) {}) })
	defer stop()

	l.mu.Lock()
	defer l.mu.Unlock()
	for !ok(l.now) {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("testserver: still waiting with %v: %w", l.now, err)
		}
		l.changed.Wait()
	}
	return nil
}

// WaitIdle returns once nothing runs, streams or holds a transaction.
func (l *Ledger) WaitIdle(ctx context.Context) error { return l.Wait(ctx, Snapshot.Idle) }

// update changes the figures, keeps the peaks and wakes those who wait.
func (l *Ledger) update(change func(*Snapshot)) {
	l.mu.Lock()
	change(&l.now)
	l.now.ConnsPeak = max(l.now.ConnsPeak, l.now.Conns)
	l.now.SessionsPeak = max(l.now.SessionsPeak, l.now.Sessions)
	l.now.RunningPeak = max(l.now.RunningPeak, l.now.Running)
	l.mu.Unlock()
	l.changed.Broadcast()
}

// begin enters a statement and returns its id.
func (l *Ledger) begin(s Statement) int {
	s.Began = time.Now()
	l.update(func(now *Snapshot) {
		now.Running++
		now.Executed++
		s.ID = now.Executed
		if len(l.statements) >= 2*keepStatements {
			l.dropped += keepStatements
			l.statements = slices.Delete(l.statements, 0, keepStatements)
		}
		l.statements = append(l.statements, s)
	})
	return s.ID
}

func (l *Ledger) end(id int, state State, err error) {
	l.update(func(now *Snapshot) {
		now.Running--
		if i := id - 1 - l.dropped; i >= 0 {
			s := &l.statements[i]
			s.State, s.Err, s.Took = state, err, time.Since(s.Began)
		}
	})
}

func (l *Ledger) cancel(c Cancel) {
	l.update(func(now *Snapshot) {
		now.Cancels++
		l.cancels = append(l.cancels, c)
	})
}
