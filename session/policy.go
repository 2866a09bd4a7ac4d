package session

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/cancel"
)

// Policy is what the owner of the connections decides for every handle. It is
// shared by them and not changed while one exists.
type Policy struct {
	// Target names the server in errors.
	Target string

	// OwnerContext is the context under which everything runs that outlives the
	// call it belongs to: cancel chains, resets, late answers. The owner
	// ends it after the last connection is closed.
	OwnerContext context.Context //nolint:containedctx // the owner's life, not a call's

	// Go runs f in a goroutine that the owner waits for. Nil: a plain one.
	Go func(f func())

	// OnReturn says how a used session is made clean.
	OnReturn SessionReset

	// Cancel bounds the cancel chain.
	Cancel CancelPolicy

	// ProbeSQL is a harmless query, by which a session shows that it is free
	// and well. Default "SELECT 1".
	ProbeSQL string

	// QueryTimeout bounds each call that names no Timeout. Zero or less: none.
	QueryTimeout time.Duration

	// CloseTimeout bounds the clean-up before a connection's return.
	CloseTimeout time.Duration

	// ReturnWaits says that giving a connection back may wait for the server, for
	// example for a health check.
	ReturnWaits bool

	// Kept has the connections whose sessions were prepared. Nil: none are.
	Kept *Kept

	// Statements has the prepared statements that are kept. Nil: none are.
	Statements *Statements

	// Allocator holds what the handle itself builds. Nil: the default one.
	Allocator memory.Allocator

	// Observe is told of events, and Tracer, which may be nil, of calls and cancels,
	// on the goroutine where they happen and outside all locks.
	Observe Observer
	Tracer  Tracer

	// answeredQueries holds the keys of the state queries that the server has answered.
	answeredQueries textSet

	// nonMovingInserts holds how the tables of INSERTs with parameters were qualified
	// that have left the session where it was. stayedInserts holds those that seem to have:
	// another session may have answered behind the INSERT.
	nonMovingInserts, stayedInserts textSet

	// changed has the settings that sessions have changed and not put back yet: see changedSettings.
	changed    changedSettings
	findShared sync.Once
	shared     *changedSettings // changed, or what several pools of a server share

	// takesProofs says that the server has prepared a session's proof: that it refuses another is a failure.
	takesProofs atomic.Bool

	// confirmsCancels says that the server has said of a statement that it has cancelled it.
	confirmsCancels atomic.Bool

	// ignoresTxIDs says that the server has transactions, and confirms the end of
	// those that it does not know, or has not said whether it does.
	ignoresTxIDs atomic.Bool

	preparing       atomic.Int32 // what is known of it: see learnPreparing
	lostUncancelled atomic.Bool  // a connection was lost since the server cannot cancel: see learnAfterLoss
}

// Observer has one optional function per event. They are the owner's functions: a panic
// in one is not caught here, and whoever waits for the event waits for them.
type Observer struct {
	// Cancelled: the cancel chain of a call has ended.
	Cancelled func(op string, r cancel.Report)

	// Reset: a session with something to take back was cleaned before its
	// return; err says why that failed and the connection is discarded.
	Reset func(took time.Duration, err error)

	// RolledBack: a transaction still open at Close was rolled back.
	RolledBack func()

	// FirstBatch: the first batch of a result is there, or its end without one, so
	// long after its statement was sent.
	FirstBatch func(took time.Duration)

	// Ended: a call of which something may have been sent has ended, so long after
	// that. It is told after the session is free again, but before Answered.
	Ended func(took time.Duration)

	// Answered: a call has ended well, so the server has answered. It is told
	// after the session is free again.
	Answered func()
}

// CancelPolicy bounds the cancel chain.
//
// Where the server cannot be asked to cancel, what proves that a statement has
// ended is a probe on its session, once it is known that its sessions run their
// statements one at a time. The pool learns that from the first three statements
// that are cut short one after the other, which cost their connections; Stats
// counts them as CancelsUnconfirmed. A call that may be several statements to the server, by the rows of its
// parameters or by its text, is proven to have ended by the server's word alone: others of the session
// may come to their turn in its middle. Nothing proves that of an ingestion, which servers need not count among the
// statements that they cancel (GizmoSQL): one whose context has ended has Budget for its end, and over Flight SQL one that is
// cut then costs its connection.
//
// In a transaction of a server that runs statements in whatever is open and has not confirmed a cancel yet (SwanLake), an
// update of that kind has Budget for its answer when its context has ended, and the transaction is rolled back
// then. Without an answer no ROLLBACK is sent, since what is left of the update would be stored behind it: the
// connection is closed, and the transaction ends when the server forgets the session. Outside of
// transactions no setting of the session is put back then, under
// which the rows run that are left: one of the whole server stays as it was set.
type CancelPolicy struct {
	// Grace is how long the end of the RPC alone may take to stop the
	// statement before the server is asked by other means, and how long each
	// of those may take to show. Default 250 ms. Of a server that needs more than
	// 2/5 of it for a trivial query, two round trips, it cannot be learned how its
	// sessions run their statements. On a server that ignores the ids of transactions
	// it is also how long a statement may take to come to its turn there: one that is
	// cut earlier than that and comes later may be stored though its transaction is not.
	Grace time.Duration

	// Budget bounds the whole chain; a statement that still runs then costs
	// its connection. Default 5 s.
	Budget time.Duration

	// Actions are names of server-specific Flight actions to try after the
	// standard ones. Each is sent with the FlightInfo of the query.
	Actions []string
}

// SessionReset says how a session that was used is made clean before the next
// borrower gets it. Under every mode an open transaction is rolled back, prepared
// statements are closed, and what SetOption has changed is put back and compared,
// with the place where names are looked for. An INSERT with parameters that moves
// the session, as it does on some servers, is led back before the next statement.
type SessionReset struct {
	mode       resetMode
	statements func() []string // hidden from prints by reflection: secrets may stand in them
}

type resetMode uint8

const (
	resetAuto resetMode = iota
	resetSQL
	resetDiscard
	resetNone
)

// The ways to make a session clean that take no argument.
var (
	// ResetAuto takes back what the statements' text shows that they left:
	// settings, the current catalogue and schema, temporary tables and views,
	// prepared names. Settings and the place where names are looked for are
	// read before they are first changed, put back and compared. Where that
	// fails, or the text does not tell, or the server has no
	// current_setting() and current_schema(), the connection is discarded.
	// Settings of the whole server, as most of DuckDB's are, are put back in that
	// case, too, those as well that DuckDB's enable_logging() and its like change; those with
	// secrets are reset. What is set by SET GLOBAL stays, and so does what is made for the whole
	// server, such as DuckDB's attached databases and secrets, and what a session has set
	// whose connection breaks or is dropped since a cancel was not confirmed.
	// What SET SESSION has set is put back by RESET SESSION; where the session had begun
	// with a value of its own, the connection is discarded.
	// Inside a transaction only what the server is known to answer is read,
	// since a query that fails would abort it: the first SET in the life of a pool is not
	// put back if it stands there, nor that of a name with a dot, nor what the first
	// enable_logging() changes. It is the default.
	ResetAuto = SessionReset{mode: resetAuto}

	// ResetDiscard closes the connection after every session and after every
	// stateless call that was not a plain read.
	ResetDiscard = SessionReset{mode: resetDiscard}

	// ResetNone cleans nothing beyond the above: the borrowers do.
	ResetNone = SessionReset{mode: resetNone}
)

// ResetSQL runs the statements after every session, and after every stateless
// call that was not a plain read. A failure discards the connection; its error names
// the statement by its number and verb and shows no values, which may be secrets.
func ResetSQL(statements ...string) SessionReset {
	return SessionReset{mode: resetSQL, statements: func() []string { return statements }}
}

// Statements are what ResetSQL was made with.
func (r SessionReset) Statements() []string {
	if r.statements == nil {
		return nil
	}
	return r.statements()
}

// String names the mode.
func (r SessionReset) String() string {
	return [...]string{"auto", "sql", "discard", "none"}[r.mode]
}

// RetryPolicy says which failed calls the pool repeats, once, on another
// connection that has just answered a ping.
type RetryPolicy uint8

// The retry policies.
const (
	// RetryReads repeats a read whose connection failed before the first
	// batch arrived; what is run by Update is none. It is the default.
	RetryReads RetryPolicy = iota
	// RetryNever repeats nothing.
	RetryNever
	// RetryAlways repeats changes as well. A change whose reply was lost
	// then takes effect twice.
	RetryAlways
)

// goInBackground runs f where no caller waits for it. The owner's Close waits for f, so
// f is bounded: by OwnerContext, by the cancel budget, or by the end of the connection.
func (p *Policy) goInBackground(f func()) {
	if p.Go != nil {
		p.Go(f)
		return
	}
	go f()
}

func (p *Policy) probeSQL() string {
	if p.ProbeSQL == "" {
		return "SELECT 1"
	}
	return p.ProbeSQL
}

func (p *Policy) grace() time.Duration {
	if p.Cancel.Grace <= 0 {
		return 250 * time.Millisecond
	}
	return p.Cancel.Grace
}

func (p *Policy) budget() time.Duration {
	if p.Cancel.Budget <= 0 {
		return 5 * time.Second
	}
	return p.Cancel.Budget
}

// closeContext is the context of work that belongs to no call: cleaning, closing
// statements, undoing a late answer. Whoever asks for it calls the function when the
// work is done.
func (p *Policy) closeContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(p.OwnerContext, p.closeTimeout())
}

func (p *Policy) closeTimeout() time.Duration {
	if p.CloseTimeout <= 0 {
		return 5 * time.Second
	}
	return p.CloseTimeout
}

// Conn is a connection that a session runs on.
type Conn = backend.Conn
