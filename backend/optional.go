package backend

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// ContextErrorWrapper is a Conn whose errors have a type of its driver's in
// their chain. Calls that their callers leave, which the driver has not
// answered, fail with what WrapContextError makes of the gRPC status.
type ContextErrorWrapper interface {
	WrapContextError(status error) error
}

// HandleNamer is a Prepared that tells the server's handle of it, so that one shows which
// the server has given twice.
type HandleNamer interface {
	// Handle is empty where the server has given another for the parameters.
	Handle() string
}

// HandleTeller is a Prepared that tells which handle the server has given when it was prepared.
// A session that has replaced another, and counts its handles anew, shows by it. By the protocol
// the handle is of the transaction that Call.Tx of the preparing names: the statement is prepared
// again before it is executed in another, unless the server goes by its session alone.
type HandleTeller interface {
	// FirstHandle is empty where it is not known, or the server has given another since. It makes
	// no call.
	FirstHandle() string
}

// QueryRepeater is a Conn whose server may execute a query twice: to tell its
// schema and to give its rows.
type QueryRepeater interface {
	// RepeatsQueries reports whether it may. The answer is learned once per
	// endpoint, on the conditions of Conn.RejectsUnknownTx.
	RepeatsQueries(ctx context.Context) (bool, error)
}

// TextCutter is a Conn whose server may take a text of several statements for the first of them.
type TextCutter interface {
	// CutsTexts reports whether an update runs that one alone, and confirms the others, or a query gives its rows.
	// The answer is learned once per endpoint.
	CutsTexts(ctx context.Context, asUpdate bool, tx TxID) (bool, error)
}

// StatementOrder is what is known of how the sessions of an endpoint take a
// statement while another runs. Connections of an endpoint share one. The zero
// value knows nothing.
type StatementOrder struct {
	concurrent atomic.Bool

	// waits is how often a statement has waited for another. Waits that overlap
	// count once: the server may have been short of CPU.
	waits       atomic.Int32
	mu          sync.Mutex
	lastWaitEnd time.Time // when the last of them ended; guarded by mu
}

// RequiredWaits is how often a statement must have waited before that is taken
// for the rule, and before any wait is believed. What is learned is kept for good.
const RequiredWaits = 3

// Known reports whether there is nothing left to learn.
func (o *StatementOrder) Known() bool { return o.IsConcurrent() || o.IsSerial() }

// IsConcurrent reports whether statements of a session run side by side.
func (o *StatementOrder) IsConcurrent() bool { return o.concurrent.Load() }

// IsSerial reports whether a session runs one statement at a time. Of a nil order that
// is known.
func (o *StatementOrder) IsSerial() bool {
	return o == nil || !o.IsConcurrent() && o.Waits() >= RequiredWaits
}

// Waits is how many waits have been noted.
func (o *StatementOrder) Waits() int { return int(o.waits.Load()) }

// SetConcurrent takes note of a statement that was answered while another ran.
func (o *StatementOrder) SetConcurrent() { o.concurrent.Store(true) }

// AddWait takes note of a wait that began at since and has ended.
func (o *StatementOrder) AddWait(since time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if since.After(o.lastWaitEnd) {
		o.lastWaitEnd = time.Now()
		o.waits.Add(1)
	}
}

// StatementOrderer is a Conn of an endpoint whose sessions may run statements side by
// side, unless its order is nil. A Conn that is none runs its statements one at a time by
// itself, each to its end, as drivers of databases in this process do.
type StatementOrderer interface{ StatementOrder() *StatementOrder }

// ConcurrentQuerier is a StatementOrderer on which the order can be learned.
type ConcurrentQuerier interface {
	StatementOrderer

	// QueryConcurrently is Query, and may be called while another call runs.
	QueryConcurrently(ctx context.Context, sql string, call Call) (Stream, error)

	// RoundTrips is how many have begun on the connection, without those of
	// QueryConcurrently, and to how many of them an answer has begun to come.
	RoundTrips() (begun, answered int64)
}

// LossNotifier is a Conn that tells unasked when its transport ends, so that an
// idle one need not be borrowed to find out.
type LossNotifier interface {
	// OnLost has f called with what Lost reports, once, as soon as it does, or
	// within OnLost if it does already. f must not wait. A later f replaces
	// one that was not called yet.
	OnLost(f func(reason error))
}

// Expirer is a Conn that can be used until a moment that is known when it is
// opened, for example because its credential ends then. The pool replaces it
// before.
type Expirer interface {
	// ExpiresAt is asked once, after the open. The zero time is no bound.
	ExpiresAt() time.Time
}

// CredentialDoubter is a Conn that learns of its credential what its server has not told it
// yet. The pool pings one in doubt before it lends it.
type CredentialDoubter interface {
	// CredentialInDoubt reports that the credential was refused on another Conn, or has been
	// replaced by one that has ended since. An answered Ping ends the former. It makes no call.
	CredentialInDoubt() bool
}

// TxWatcher is a Conn that sees to it by itself that the statements of a transaction, and
// its end, reach the session in which it began, or none. What its server makes of unknown
// transactions is another question, which RejectsUnknownTx answers as on any Conn.
type TxWatcher interface {
	// BeginProven is Begin after prove, which recognises the session by calls of this Conn.
	// A session that is put in the place of the one that prove has seen runs no statement
	// of the transaction. What prove fails with is returned as it is; nothing has begun then.
	BeginProven(ctx context.Context, prove func(ctx context.Context) error) (TxID, error)
}

// ResultDescriber is a Prepared that knows what its rows look like.
type ResultDescriber interface {
	// ResultSchema is nil when the server does not tell. It makes no call.
	ResultSchema() *arrow.Schema
}
