package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// cleanAndReturn cleans the session and returns the connection. The state is
// cleaning. A connection that is discarded is rolled back first: servers may
// keep the transactions of dropped connections.
//
// It is reached once for each connection: the state cleaning is entered once, by Close
// of an idle handle or by becomeIdle, and releaseConn is taken away under the lock.
// Nothing is sent on a lost connection. What fails on one that is discarded anyway is
// not worth an error, nor is that its credential has expired: nothing is lost by that.
func (s *SessionHandle) cleanAndReturn() error {
	s.mu.Lock()
	reason, lost, tx := s.mu.discardReason, s.mu.lost, s.mu.tx
	s.mu.Unlock()
	var failure error
	switch {
	case lost != nil:
		reason = lostError(lost)
	case reason != nil:
		ctx, stop := s.policy.closeContext()
		_ = s.closeTxAndStatements(ctx, tx, nil)
		stop()
	default:
		reason = s.cleanSession()
		if backend.FaultIn(reason) != backend.FaultAuth {
			failure = reason
		}
	}
	s.mu.Lock()
	s.mu.state = closed
	releaseConn := s.mu.releaseConn
	s.mu.releaseConn = nil
	s.mu.Unlock()
	if releaseConn != nil {
		releaseConn(reason)
	}
	return failure
}

// cleanAndReturnFor is cleanAndReturn at the end of c, or, if c is nil, of a call that
// no caller waits for. Its error has gone into the reason to discard.
//
// INVARIANT: a caller never waits past the end of its context for the session to be
// made clean.
//
// If there is nothing to send, no goroutine is needed. Else c's context is still
// watched: call.end takes the hook on it off only after this.
func (s *SessionHandle) cleanAndReturnFor(c *call) {
	if c == nil || !s.returnNeedsServer() {
		_ = s.cleanAndReturn()
		return
	}
	done := make(chan struct{})
	s.policy.goInBackground(func() {
		defer close(done)
		_ = s.cleanAndReturn()
	})
	select {
	case <-done:
	case <-c.callerGone:
	}
}

// closeTxAndStatements rolls back the open transaction and closes the proof and the
// prepared statements. It does so under every reset mode. Without the statements it is
// for a connection that is closed next: they end with the session.
func (s *SessionHandle) closeTxAndStatements(ctx context.Context, tx transaction, prepared map[*PreparedQuery]struct{}) error {
	if tx.openOnServer() {
		if err := s.rollBack(ctx, tx); err != nil {
			return fmt.Errorf("roll back: %w", err)
		}
		if f := s.policy.Observe.RolledBack; f != nil {
			f()
		}
	}
	if err := s.closeProof(ctx); err != nil {
		return fmt.Errorf("close the session's proof: %w", err)
	}
	for q := range prepared {
		if err := q.stmt.Close(ctx); err != nil {
			return fmt.Errorf("close prepared statement: %w", err)
		}
	}
	return nil
}

// markDiscard has the connection closed when the handle is done with it. The handle
// goes on meanwhile; the first reason counts.
func (s *SessionHandle) markDiscard(reason error) {
	s.mu.Lock()
	if s.mu.discardReason == nil {
		s.mu.discardReason = reason
	}
	s.mu.Unlock()
}

// Discard is Close for a session whose connection must not be reused: the connection
// is closed, for the given reason.
func (s *SessionHandle) Discard(reason error) error {
	s.markDiscard(reason)
	return s.Close()
}

// sideEffects is what the statements of a session leave behind that the next borrower
// could see.
//
// A copy of it is read without the lock while the session is cleaned. Hence initial and
// options are replaced by a changed clone, never written to; unknownInitial is used
// under the lock alone.
type sideEffects struct {
	effects            []sqlscan.Effect
	refusedSettings    []sqlscan.Effect       // settings that a refused statement may have changed: DuckDB sets some before it looks at the value
	initial            map[string]stateValues // what queries of the session's state returned before its first change, by their key
	unknownInitial     map[string]bool        // keys of queries that could not be asked before a change: too late since
	options            map[string]any         // session options as they were before SetOption
	mayHaveMoved       bool                   // a bulk load may have moved the session to another catalogue
	unverifiedInsert   *insertion             // the one after which the namespace was not verified, although it is known from before
	mustLearnNamespace bool                   // it is to be found out whether the server tells where a session is
	used               bool                   // something other than a plain read was sent
}

// add records what a text leaves behind. done says that all of it has run: otherwise it
// may have left only a part, and taken nothing back. A text that did not run to its end
// is taken to have left everything that it could. A DEALLOCATE is the exception: it
// takes back what is on record, and only once it is done.
func (d *sideEffects) add(script sqlscan.Script, done bool) {
	d.used = d.used || !script.ReadOnly() || len(script.Effects()) > 0
	for _, e := range script.Effects() {
		if e.Kind == sqlscan.EffectDeallocate {
			e = d.deallocate(e, done)
		}
		if e.Kind != sqlscan.EffectDeallocate {
			d.effects = append(d.effects, e)
		}
	}
}

// addRefused records what a single statement may have left that the server has refused:
// settings, as far as they were read before. A setting that was not read before does
// not exist on the server. Settings that are linked to others change before the server
// looks at the value, too.
func (d *sideEffects) addRefused(script sqlscan.Script) {
	for _, e := range script.Effects() {
		_, read := d.initial[settingQuery(e).key]
		switch {
		case e.Kind == sqlscan.EffectLinkedSettings:
			d.effects, d.used = append(d.effects, e), true
		case e.Kind == sqlscan.EffectSetting && read:
			d.refusedSettings = append(d.refusedSettings, e)
		}
	}
}

// namespaceChangedByCaller reports whether a call of the caller's may have changed where names
// are looked for.
func (d *sideEffects) namespaceChangedByCaller() bool {
	return len(d.options) > 0 || slices.ContainsFunc(d.effects, func(e sqlscan.Effect) bool { return e.Kind == sqlscan.EffectNamespace })
}

// deallocate is e if what it takes back was on record, which it no longer is when
// that is done, else an unknown effect: it took something away that was there
// before.
func (d *sideEffects) deallocate(e sqlscan.Effect, done bool) sqlscan.Effect {
	for i, have := range d.effects {
		if have.Kind == sqlscan.EffectPrepared && have.Key() == e.Key() {
			if done {
				d.effects = append(d.effects[:i:i], d.effects[i+1:]...)
			}
			return e
		}
	}
	return sqlscan.Effect{Kind: sqlscan.EffectUnknown}
}

// returnNeedsServer reports whether anything has to be sent before the connection is
// returned, or for its return. The state is cleaning. Where nothing has to be sent, the
// caller's own goroutine gives the connection back at once.
func (s *SessionHandle) returnNeedsServer() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.lost != nil:
		return false
	case s.mu.discardReason != nil:
		return s.mu.tx.openOnServer() || s.mu.proof.stmt != nil
	default:
		return s.policy.ReturnWaits || s.needsCleaning(s.mu.sideEffects)
	}
}

// wasUsed reports whether anything was done that a reset by mode undoes. Whoever holds
// a session may have done in it what no text shows, so it counts as used.
func (s *SessionHandle) wasUsed(d sideEffects) bool {
	return d.used || len(d.options) > 0 || !s.stateless
}

// needsCleaning reports whether the session was left in a state that the next borrower
// must not get, or may have been. The lock is held.
func (s *SessionHandle) needsCleaning(d sideEffects) bool {
	return s.mu.tx.openOnServer() || len(s.mu.prepared) > 0 || s.mu.needsProbe || s.mu.proof.stmt != nil || s.mustReset(d, s.wasUsed(d))
}

// cleanSession takes back all that the session left. An error means that the connection
// must be discarded. One CloseTimeout bounds all of it. The transaction ends first,
// since an aborted one refuses every other statement; then what lived in the session;
// and the probe comes last, since it vouches for the session as the next borrower will
// find it.
func (s *SessionHandle) cleanSession() error {
	s.mu.Lock()
	tx, d, needsProbe, needsCleaning := s.mu.tx, s.mu.sideEffects, s.mu.needsProbe, s.needsCleaning(s.mu.sideEffects)
	// From here on a prepared statement of the handle answers that it is closed.
	prepared := s.mu.prepared
	s.mu.prepared = nil
	s.mu.Unlock()
	wasUsed := s.wasUsed(d)
	discardUsed := s.policy.OnReturn.mode == resetDiscard && wasUsed
	if !discardUsed && !needsCleaning {
		return nil // the common case: nothing to clean, so nothing is sent
	}
	ctx, stop := s.policy.closeContext()
	defer stop()
	if discardUsed {
		_ = s.closeTxAndStatements(ctx, tx, nil)
		return errors.New("discarded after use, as configured")
	}
	start := time.Now()
	err := s.closeTxAndStatements(ctx, tx, prepared)
	if err == nil && s.mustReset(d, wasUsed) {
		err = s.reset(ctx, d)
	}
	if err == nil && needsProbe {
		err = s.runProbe(ctx)
	}
	if err != nil {
		err = fmt.Errorf("session could not be made clean: %w", err)
	}
	if f := s.policy.Observe.Reset; f != nil {
		f(time.Since(start), err)
	}
	return err
}

// mustReset reports whether there is something to take back beside the transaction and
// the prepared statements. The modes that leave cleaning to others still take back what
// no text of the caller's has done.
func (s *SessionHandle) mustReset(d sideEffects, wasUsed bool) bool {
	switch s.policy.OnReturn.mode {
	case resetAuto:
		return len(d.effects) > 0 || len(d.refusedSettings) > 0 || len(d.options) > 0 || d.mayHaveMoved || d.mustLearnNamespace
	case resetSQL:
		return wasUsed
	default:
		return len(d.options) > 0 || d.mayHaveMoved
	}
}

// reset takes back what was left. Options are restored under every mode, since a call
// of ours has set them, and the namespace after an INSERT with parameters, since no
// text of the caller's has changed it: both before the owner's statements.
func (s *SessionHandle) reset(ctx context.Context, d sideEffects) error {
	if len(d.options) > 0 {
		if err := s.restoreOptions(ctx, d.options); err != nil {
			return fmt.Errorf("put session options back: %w", err)
		}
		if err := s.restoreNamespaceAfterOptions(ctx, d); err != nil {
			return err
		}
	}
	if d.mayHaveMoved && s.policy.OnReturn.mode != resetAuto {
		if err := s.returnAtCleanup(ctx, d); err != nil {
			return err
		}
	}
	switch s.policy.OnReturn.mode {
	case resetAuto:
		return s.undoEffects(ctx, d)
	case resetSQL:
		for i, sql := range s.policy.OnReturn.Statements() {
			if err := s.execSecret(ctx, sql, backend.Call{}); err != nil {
				return fmt.Errorf("statement %d of ResetSQL: %w", i+1, err)
			}
		}
	case resetDiscard, resetNone:
	}
	return nil
}
