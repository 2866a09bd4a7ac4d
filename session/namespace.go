package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/flightpool/flightpool/backend"
)

// Where names are looked for: with the whole search path where the server has
// one, else without. Spark's database is the schema, so that two that are equal name no catalogue.
var (
	searchPathQuery = stateQuery{notNull: true, key: "(path)", subject: "the search path", sql: "SELECT current_database(), current_schema(), current_setting('search_path')"}
	namespaceQuery  = stateQuery{notNull: true, distinct: true, key: "(place)", subject: "the catalogue and schema", sql: "SELECT current_database(), current_schema()"}
	catalogQuery    = stateQuery{notNull: true, columns: 2, key: "(catalogue)", subject: "the catalogue and schema", sql: "SELECT current_catalog(), current_schema()"}
)

// namespaceUnsupported is in Policy.nonMovingInserts where the server does not report a
// namespace.
const namespaceUnsupported = "(none)"

// insertion is a call's INSERT with parameters. There are servers that load them in
// bulk and leave the session at the catalogue of the table. SwanLake does so. Names
// without a catalogue would then mean other tables, for the handle's own later
// statements and for the next borrower.
type insertion struct {
	qualifier   string // how the table is qualified, to learn of; "-" not to
	query       stateQuery
	namespace   stateValues // before it; nil when that could not be read
	movedBefore bool        // an earlier one may have moved the session already
	witness     *proof      // shows that one session has answered before and after; nil where nothing is learned
}

// beforeInsert reads where the session is before an INSERT with parameters is
// sent, unless the server is known to leave it there. What is done about it does
// not depend on Config.OnReturn, since no text of the caller's has moved the
// session: the statements of ResetSQL need not lead it back. ResetDiscard alone has nothing
// to lead back after a single call.
//
// INVARIANT: while sideEffects.mayHaveMoved is set the session may be elsewhere than
// its statements' text tells.
func (s *SessionHandle) beforeInsert(ctx context.Context, c *call) error {
	table := c.script.Statements[0].InsertInto
	if !c.hasParams || table == "" || s.closesNext() || s.policy.nonMovingInserts.has(namespaceUnsupported) {
		return nil
	}
	in := &insertion{qualifier: strings.ToLower(strings.TrimSuffix(table, lastPart(table))) + "."}
	s.mu.Lock()
	if s.mu.sideEffects.namespaceChangedByCaller() {
		in.qualifier = "-" // what is true here need not be at the session's start
	}
	in.movedBefore = s.mu.sideEffects.mayHaveMoved
	inTx := s.mu.tx.phase != txNone
	nonMoving := !in.movedBefore && s.policy.nonMovingInserts.has(in.qualifier)
	if inTx && !in.movedBefore && !nonMoving && !s.policy.reportsNamespace() && s.mu.proof.trusted {
		// Nothing can be read before the server has been asked outside of a
		// transaction, which is done when the session is given back. A server
		// that knows its transactions is taken for one that does as told.
		s.mu.sideEffects.mustLearnNamespace, nonMoving = true, true
	}
	s.mu.sideEffects.mayHaveMoved = !nonMoving // as it is where one before may have
	s.mu.Unlock()
	if nonMoving {
		return nil
	}
	c.insert = in
	for _, r := range namespaceQueries {
		if inTx && !s.policy.answeredQueries.has(r.key) {
			s.markUnknownInitial(r)
			continue
		}
		row, err := s.runStateQuery(ctx, r, backend.Call{Tx: c.backendCall.Tx})
		if err == nil {
			in.query, in.namespace = r, row
			s.recordInitial(r, row)
			return nil
		}
		if inTx || !backend.FaultIn(err).KeepsConn() {
			return err
		}
	}
	if inTx {
		return nil
	}
	s.setMayHaveMoved(in.movedBefore)
	if none, err := s.tellsNoPlace(ctx); err != nil {
		return err
	} else if !none {
		return &backend.Error{Stage: backend.StageProbe, Fault: backend.FaultStatement, Unsent: true, Err: errNamespaceUnknown}
	}
	return nil
}

// errNamespaceUnknown says why an INSERT was not sent.
var errNamespaceUnknown = errors.New("the server refuses to tell where the session is, which it has told before, and the INSERT may lead it elsewhere")

// afterInsert leads the session back to where it was before the INSERT. Where
// that is done: what fails here costs the connection and an open transaction,
// which it may have aborted, and not the call. After one that failed it is done
// before the next statement.
func (s *SessionHandle) afterInsert(ctx context.Context, c *call, failed error) {
	in := c.insert
	if in == nil || in.namespace == nil {
		return
	}
	err := failed
	if err == nil {
		var stayed bool
		if stayed, err = s.returnToNamespace(ctx, in, backend.Call{Tx: c.backendCall.Tx}); stayed {
			err = s.learnNonMoving(ctx, in, c.backendCall.Tx)
		}
		if err != nil {
			s.markDiscard(err)
			s.abortTx(err)
		}
	}
	if err != nil {
		s.leaveUnverified(in)
		return
	}
	s.closeWitness(ctx, in)
}

// returnToNamespace verifies that the session is where it was before the INSERT, and leads
// it back there if not.
func (s *SessionHandle) returnToNamespace(ctx context.Context, in *insertion, call backend.Call) (stayed bool, err error) {
	now, err := s.runStateQuery(ctx, in.query, call)
	if stayed = now.equal(in.namespace); err == nil && !stayed { // what could not be read is equal to nothing
		err = s.restoreStateValues(ctx, in.query, in.namespace, call)
	}
	if err == nil {
		s.setMayHaveMoved(in.movedBefore)
	}
	return stayed, err
}

// namespaceUnverified reports whether it has to be verified yet, after an INSERT that
// failed, that the session is where it was.
func (s *SessionHandle) namespaceUnverified() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.sideEffects.unverifiedInsert != nil
}

// returnBeforeStatement does before a statement what could not be done after an INSERT.
// In another namespace the statement could resolve to another table.
func (s *SessionHandle) returnBeforeStatement(ctx context.Context, call backend.Call) error {
	s.mu.Lock()
	in := s.mu.sideEffects.unverifiedInsert
	s.mu.Unlock()
	if in == nil {
		return nil
	}
	if _, err := s.returnToNamespace(ctx, in, backend.Call{Tx: call.Tx}); err != nil {
		if backend.FaultIn(err).KeepsConn() {
			err = &backend.Error{Stage: backend.StageProbe, Fault: backend.FaultSession, Unsent: true, Err: fmt.Errorf("%w: an INSERT has led it elsewhere: %w", backend.ErrSessionLost, err)}
		}
		return err
	}
	s.mu.Lock()
	s.mu.sideEffects.unverifiedInsert = nil
	s.mu.Unlock()
	return nil
}

// returnAtCleanup leads the session back to where it was before an INSERT, at the
// end of a session whose own moves stay.
func (s *SessionHandle) returnAtCleanup(ctx context.Context, d sideEffects) error {
	if d.unverifiedInsert == nil {
		return s.verifyNamespace(ctx, d)
	}
	_, err := s.returnToNamespace(ctx, d.unverifiedInsert, backend.Call{})
	return err
}

// setMayHaveMoved takes back what beforeInsert has noted, to the value of before: after
// a look at where the session is, or where the INSERT is not sent or the server reports
// no namespace.
func (s *SessionHandle) setMayHaveMoved(moved bool) {
	s.mu.Lock()
	s.mu.sideEffects.mayHaveMoved = moved
	s.mu.Unlock()
}

// restoreNamespace makes the session look for names where it did at its start. whole
// says that the search path was changed, and so has to be compared. Where it was not
// read at the start, there is nothing to compare with: the connection is given up, but
// the next session may learn from it that the server answers.
func (s *SessionHandle) restoreNamespace(ctx context.Context, d sideEffects, whole bool) error {
	for _, r := range namespaceQueries {
		if before, ok := d.initial[r.key]; ok && (r.key == searchPathQuery.key || !whole) {
			now, err := s.runStateQuery(ctx, r, backend.Call{})
			if err != nil || now.equal(before) {
				return err
			}
			return s.restoreStateValues(ctx, r, before, backend.Call{})
		}
	}
	s.learnAnswered(ctx, searchPathQuery)
	return errors.New("the catalogue or schema was changed, and the server could not tell it before")
}

// beforeTx finds out what the server makes of INSERTs with parameters, and whether it tells where a session is, while a query
// that fails aborts no transaction. A server that ignores transaction ids may
// also move a session in one.
func (s *SessionHandle) beforeTx(ctx context.Context) error {
	if !s.acceptsUnknownTx() {
		return nil
	}
	if _, err := s.learnPreparing(ctx); err != nil {
		return err
	}
	if p := s.policy; p.reportsNamespace() || p.nonMovingInserts.has(namespaceUnsupported) {
		return nil
	}
	return s.learnNamespaceSupport(ctx)
}

// namespaceQueries are tried in order.
var namespaceQueries = []stateQuery{searchPathQuery, namespaceQuery, catalogQuery}

// knowsPlace reports whether it was read where the session began.
func (d *sideEffects) knowsPlace() bool {
	return slices.ContainsFunc(namespaceQueries, func(r stateQuery) bool { _, ok := d.initial[r.key]; return ok })
}

// learnNamespaceSupport finds out whether the server tells where a session is.
func (s *SessionHandle) learnNamespaceSupport(ctx context.Context) error {
	for _, r := range namespaceQueries {
		_, err := s.runStateQuery(ctx, r, backend.Call{})
		if err == nil || !backend.FaultIn(err).KeepsConn() {
			return err
		}
	}
	_, err := s.tellsNoPlace(ctx)
	return err
}

// rememberNamespace reads where names are looked for before an option is set, which
// may lead elsewhere. An option that is erased again leads to the server's
// default, and the session may have begun in another place.
func (s *SessionHandle) rememberNamespace(ctx context.Context) error {
	if s.policy.OnReturn.mode == resetDiscard || s.policy.nonMovingInserts.has(namespaceUnsupported) {
		return nil
	}
	for _, r := range namespaceQueries {
		if known, err := s.rememberRow(ctx, r); known || err != nil {
			return err
		}
	}
	return nil
}

// restoreNamespaceAfterOptions is for the end of options: see rememberNamespace.
func (s *SessionHandle) restoreNamespaceAfterOptions(ctx context.Context, d sideEffects) error {
	if !d.knowsPlace() && s.policy.nonMovingInserts.has(namespaceUnsupported) {
		return nil
	}
	return s.verifyNamespace(ctx, d)
}

// verifyNamespace is restoreNamespace after an INSERT with parameters of which it is
// not known whether it has moved the session. A server that does not report a namespace
// has none.
func (s *SessionHandle) verifyNamespace(ctx context.Context, d sideEffects) error {
	err := s.restoreNamespace(ctx, d, false)
	if d.knowsPlace() { // else err is not nil
		return err
	}
	if _, unread := s.runStateQuery(ctx, namespaceQuery, backend.Call{}); unread == nil || !backend.FaultIn(unread).KeepsConn() {
		return err
	}
	if none, _ := s.tellsNoPlace(ctx); none {
		return nil
	}
	return err
}

// restoreStateValues restores what r reads, and compares it. Without a search path the
// first two columns are the catalogue and the schema.
func (s *SessionHandle) restoreStateValues(ctx context.Context, r stateQuery, before stateValues, call backend.Call) error {
	if r.key == searchPathQuery.key {
		return s.restore(ctx, r, before, restoring("search_path", before[len(before)-1], changedValues{anyones: true}), call)
	}
	if len(before) < 2 {
		return fmt.Errorf("%s cannot be put back", r.subject)
	}
	if err := s.exec(ctx, "USE "+quoteName(before[0].text)+"."+quoteName(before[1].text), call); err != nil {
		return err
	}
	now, err := s.runStateQuery(ctx, r, call)
	if err == nil && !now.equal(before) {
		err = fmt.Errorf("%s are not what they were", r.subject)
	}
	return err
}
