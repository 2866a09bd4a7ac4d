package session

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/ctxerr"
	"github.com/flightpool/flightpool/internal/effect"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// Kept are the connections whose sessions were prepared for their borrowers, each with
// the proof that its session is still that one. Every session may be replaced by the
// server, which then has nothing of what was set, so the proof is held on every server.
//
// INVARIANT: on a connection in Kept nothing is sent that changes anything, or is sent
// more than maxProofAge after the last proof, before the proof was compared. Inside a
// transaction of a server that refuses those of other sessions its id is the proof, but
// for a session that the server replaces between the proof and the BEGIN: the server
// takes no other proof there, so that this shows behind the transaction only. A nil *Kept
// has none.
type Kept struct {
	byConn sync.Map // backend.Conn to *keptProof
}

type keptProof struct {
	proof
	refusal  error                     // why stmt could not be prepared
	temps    string                    // what temporary objects are kept, as keptTempsQuery tells
	provenAt atomic.Pointer[time.Time] // when the last proof was sent that has held
}

// canBeKept reports whether a connection can be told from others: Kept and Statements know it by itself.
// One that is a value with a function or a slice in it cannot.
func canBeKept(c backend.Conn) bool {
	return reflect.TypeOf(c).Kind() == reflect.Pointer || reflect.ValueOf(c).Comparable() // which allocates
}

// Forget is for a connection that is being closed.
func (k *Kept) Forget(c backend.Conn) {
	if k != nil && canBeKept(c) {
		k.byConn.Delete(c)
	}
}

// of is the proof of a connection's session, nil for one that nothing was kept in.
func (k *Kept) of(c backend.Conn) *keptProof {
	if k == nil {
		return nil
	}
	if found, ok := k.byConn.Load(c); ok {
		return found.(*keptProof)
	}
	return nil
}

// MustProve reports whether the last proof of a connection's session is too old to lend
// it by.
func (k *Kept) MustProve(c backend.Conn) bool { return k.of(c).mustProve(accessRead) }

// Prove makes sure that the session of a connection which is about to be borrowed is
// still the one that was prepared. After an error the connection must be closed.
func (k *Kept) Prove(ctx context.Context, c backend.Conn) error {
	return k.of(c).prove(ctx, accessChange, "")
}

// NewKeeping makes a handle that prepares the session of a new connection for those who
// borrow it later: CloseKeeping ends it. ended is called once nothing of it is under way.
func NewKeeping(ctx context.Context, conn backend.Conn, policy *Policy, ended func()) (*SessionHandle, error) {
	if !canBeKept(conn) {
		return nil, &backend.Error{Stage: backend.StageArgument, Fault: backend.FaultUsage, Unsent: true,
			Err: fmt.Errorf("a connection of type %T cannot be told from others, as its preparation needs: make it a pointer", conn)}
	}
	kept := &keptProof{proof: proof{state: proofHeld, nonce: rand.Text()}, temps: noTemps}
	stmt, err := conn.Prepare(ctx, "SELECT '"+kept.nonce+"'", backend.Call{})
	switch {
	case err == nil:
		kept.stmt = stmt
	case !backend.FaultIn(err).KeepsConn(), effect.NoVerdict(err):
		return nil, noWordOnProof(err)
	default:
		kept.state, kept.refusal = proofImpossible, err
	}
	s := New(conn, policy, func(error) { ended() })
	s.kept, s.preparing = kept, true
	return s, nil
}

var errNotKept = errors.New("the server prepares no statement by which to find out whether it has replaced the session by one in which nothing of this is set")

// CloseKeeping ends a handle of NewKeeping. What it has set, made and attached stays. Its
// prepared statements are closed. An error means that the connection must be closed; an
// open transaction is rolled back then. It is one if a call or a result is open. For a
// call that is being ended behind its caller it waits.
func (s *SessionHandle) CloseKeeping(ctx context.Context) error {
	left, err := s.startKeeping(ctx)
	if err != nil {
		_ = s.Discard(err) // err says more
		return err
	}
	_, err = s.closeTxAndStatements(ctx, transaction{}, left.prepared)
	if err == nil && slices.Contains(left.sideEffects.effects, sqlscan.TxPolicy()) { // which OnConnect has not set
		err = s.resetTxPolicy(ctx, sqlscan.TxPolicy())
	}
	if err == nil && left.needsProbe {
		err = s.runProbe(ctx)
	}
	switch {
	case err != nil:
	case s.kept.stmt == nil:
	case left.sideEffects.used, left.sideEffects.any():
		if err = s.readKeptTemps(ctx, left.sideEffects.effects); err == nil {
			err = s.kept.prove(ctx, accessChange, "")
		}
		if err == nil {
			s.policy.Kept.byConn.Store(s.conn, s.kept)
		}
	default:
		err = s.kept.stmt.Close(ctx)
	}
	s.mu.Lock()
	s.mu.state = closed
	ended := s.mu.releaseConn
	s.mu.releaseConn = nil
	s.mu.Unlock()
	ended(err)
	return err
}

type leftToKeep struct {
	sideEffects sideEffects
	prepared    map[*PreparedQuery]struct{}
	needsProbe  bool
}

// startKeeping has every later call refused, unless the session cannot be kept as it is.
func (s *SessionHandle) startKeeping(ctx context.Context) (leftToKeep, error) {
	for {
		left, wait, err := s.tryKeeping()
		if wait == nil {
			return left, err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return left, keepingError(backend.FaultContext, ctxerr.Of(ctx))
		}
	}
}

// tryKeeping is startKeeping, or tells what to wait for.
func (s *SessionHandle) tryKeeping() (left leftToKeep, wait <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left = leftToKeep{s.mu.sideEffects, s.mu.prepared, s.mu.needsProbe}
	switch {
	case s.mu.state == closed, s.mu.state == cleaning, s.mu.closing:
		return left, nil, keepingError(backend.FaultUsage, backend.ErrHandleClosed)
	case s.mu.lost != nil:
		return left, nil, keepingError(backend.FaultSession, lostError(s.mu.lost))
	case s.mu.state == ending:
		return left, s.mu.ended, nil
	case s.mu.rollbackDone != nil:
		return left, s.mu.rollbackDone, nil
	case s.mu.state != idle:
		return left, nil, keepingError(backend.FaultUsage, fmt.Errorf("%w: a call or its result is still open", backend.ErrBusy))
	case s.mu.tx.phase != txNone:
		return left, nil, keepingError(backend.FaultUsage, ErrTxOpen)
	case s.mu.discardReason != nil:
		return left, nil, keepingError(backend.FaultSession, s.mu.discardReason)
	case left.sideEffects.any() && s.kept.state == proofImpossible:
		return left, nil, keepingError(backend.FaultIn(s.kept.refusal), fmt.Errorf("%w: %w", errNotKept, s.kept.refusal))
	}
	s.mu.state, s.mu.prepared = cleaning, nil
	return left, nil, nil
}

func keepingError(fault backend.Fault, err error) error {
	return &backend.Error{Stage: backend.StageExecute, Fault: fault, Err: err}
}

// noTemps is what keptTempsQuery answers where there are none.
const noTemps = "0"

// keptTempsQuery tells what the temporary objects of a prepared session are: all that
// tempsQuery counts, with its definition, and what else borrowers could drop. Macros are
// not among them, of which DuckDB takes 100 ms to tell: to drop one costs the session.
var keptTempsQuery = stateQuery{key: "(kept temporary)", subject: tempsQuery.subject, sql: "SELECT coalesce(md5(string_agg(what, ';' ORDER BY what)), '" + noTemps + "') FROM" +
	" (SELECT sql AS what FROM duckdb_tables() WHERE temporary AND NOT internal" +
	" UNION ALL SELECT sql FROM duckdb_views() WHERE temporary AND NOT internal" +
	" UNION ALL SELECT sql FROM duckdb_indexes() WHERE database_name = 'temp'" +
	" UNION ALL SELECT sequence_name FROM duckdb_sequences() WHERE temporary" +
	" UNION ALL SELECT type_name FROM duckdb_types() WHERE database_name = 'temp' AND NOT internal AND NOT starts_with(type_name, '__pivot_enum_'))"}

// verifyKeptTemps looks whether the temporary objects are still what they were.
func (s *SessionHandle) verifyKeptTemps(ctx context.Context) error {
	row, err := s.runStateQuery(ctx, keptTempsQuery, backend.Call{})
	if err == nil && row[0].text != s.tempsAtStart() {
		err = fmt.Errorf("%s are not what they were", keptTempsQuery.subject)
	}
	return err
}

// readKeptTemps notes what temporary objects are kept, so that it shows when a borrower
// has dropped or changed one. What could not be read is equal to nothing.
func (s *SessionHandle) readKeptTemps(ctx context.Context, effects []sqlscan.Effect) error {
	mayHave := slices.ContainsFunc(effects, func(e sqlscan.Effect) bool {
		return e.Kind == sqlscan.EffectTempTable || e.Kind == sqlscan.EffectTempView || e.Kind == sqlscan.EffectUnknown
	})
	if !mayHave || s.policy.OnReturn.mode != resetAuto {
		return nil
	}
	row, err := s.runStateQuery(ctx, keptTempsQuery, backend.Call{})
	switch {
	case err == nil:
		s.kept.temps = row[0].text
	case backend.FaultIn(err).KeepsConn():
		s.kept.temps, err = "", nil
	}
	return err
}

// tempsAtStart is what temporary objects the session began with, as keptTempsQuery tells.
func (s *SessionHandle) tempsAtStart() string {
	if s.kept == nil {
		return noTemps
	}
	return s.kept.temps
}

// mustProve reports whether the session must be proven before what is about to be sent.
func (k *keptProof) mustProve(n access) bool {
	if k == nil || k.stmt == nil {
		return false
	}
	at := k.provenAt.Load()
	return n != accessRead || at == nil || time.Since(*at) >= maxProofAge
}

// prove makes sure, before anything is sent to it, that a session which was prepared for
// its borrowers is still that one: see Kept.
func (k *keptProof) prove(ctx context.Context, n access, tx backend.TxID) error {
	if !k.mustProve(n) {
		return nil
	}
	return askInTime(maxProofAge, func(at time.Time) error {
		if err := k.compare(ctx, tx); err != nil {
			return err
		}
		k.provenAt.Store(&at)
		return nil
	})
}

// proofOfUpdate is how a connection that may be led to another session unseen recognises the
// one that was prepared. It is nil for others, for reads, inside transactions, which such
// connections watch, and where nothing was prepared.
func (s *SessionHandle) proofOfUpdate(tx transaction, script sqlscan.Script) func(context.Context) error {
	if _, mayBeLed := s.conn.(backend.TxWatcher); !mayBeLed || script.ReadOnly() || tx.phase != txNone || !s.kept.mustProve(accessChange) {
		return nil
	}
	return func(ctx context.Context) error { return s.kept.prove(ctx, accessChange, "") }
}
