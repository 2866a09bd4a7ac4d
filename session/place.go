package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Where names are looked for: with the whole search path where the server has
// one, else without.
var (
	pathReader  = reader{set: true, key: "(path)", what: "the search path", sql: "SELECT current_database(), current_schema(), current_setting('search_path')"}
	placeReader = reader{set: true, key: "(place)", what: "the catalogue and schema", sql: "SELECT current_database(), current_schema()"}
)

// noPlaces is in Policy.harmless where the server tells of no place.
const noPlaces = "(none)"

// insertion is a call's INSERT with parameters. There are servers that load
// them in bulk and leave the session at the catalogue of the table.
type insertion struct {
	target string // how the table is qualified, to learn of; "-" not to
	reader reader
	place  reading // before it; nil when that could not be read
	moved  bool    // an earlier one may have moved the session already
}

// beforeInsert reads where the session is before an INSERT with parameters is
// sent, unless the server is known to leave it there. What is done about it does
// not depend on Config.OnReturn, since no text of the caller's has moved the
// session; but after a single call the owner's own cleaning does.
//
// INVARIANT: while dirt.moved is set the session may be elsewhere than its
// statements' text tells.
func (s *SessionHandle) beforeInsert(ctx context.Context, c *call) error {
	table := c.script.Statements[0].InsertInto
	mode := s.policy.OnReturn.mode
	cleaned := s.stateless && (mode == resetDiscard || mode == resetSQL)
	if !c.bound || table == "" || cleaned || s.policy.harmless.has(noPlaces) {
		return nil
	}
	in := &insertion{target: strings.ToLower(strings.TrimSuffix(table, lastPart(table))) + "."}
	s.mu.Lock()
	if s.mu.dirt.elsewhere() {
		in.target = "-" // what is true here need not be at the session's start
	}
	in.moved = s.mu.dirt.moved
	inTx := s.mu.tx.phase != txNone
	harmless := !in.moved && s.policy.harmless.has(in.target)
	if inTx && !in.moved && !harmless && !s.policy.tellsPlace() && s.mu.proof.state == proofNotNeeded {
		// Nothing can be read before the server has been asked outside of a
		// transaction, which is done when the session is given back. A server
		// that knows its transactions is taken for one that does as told.
		s.mu.dirt.ask, harmless = true, true
	}
	s.mu.dirt.moved = in.moved || !harmless
	s.mu.Unlock()
	if harmless {
		return nil
	}
	c.insert = in
	for _, r := range placeReaders {
		if inTx && !s.policy.readable.has(r.key) {
			s.markUnread(r)
			continue
		}
		row, err := s.readRow(ctx, r, Call{Tx: c.info.Tx})
		if err == nil {
			in.reader, in.place = r, row
			s.keepBefore(r, row)
			return nil
		}
		if inTx || !FaultIn(err).KeepsConn() {
			return err
		}
	}
	if inTx {
		return nil
	}
	s.setMoved(in.moved)
	if none, err := s.tellsNoPlace(ctx); err != nil {
		return err
	} else if !none {
		return &Error{Stage: StageProbe, Fault: FaultStatement, Unsent: true, Err: errPlaceUntold}
	}
	return nil
}

// errPlaceUntold says why an INSERT was not sent.
var errPlaceUntold = errors.New("the server refuses to tell where the session is, which it has told before, and the INSERT may lead it elsewhere")

// afterInsert leads the session back to where it was before the INSERT. Where
// that is done: what fails here costs the connection and an open transaction,
// which it may have aborted, and not the call. After one that failed it is done
// before the next statement.
func (s *SessionHandle) afterInsert(ctx context.Context, c *call, failed error) {
	in := c.insert
	if in == nil || in.place == nil {
		return
	}
	err := failed
	if err == nil {
		var stayed bool
		if stayed, err = s.leadBack(ctx, in, Call{Tx: c.info.Tx}); err != nil {
			s.markDiscard(err)
			s.abort(err)
		} else if stayed && in.target != "-" {
			s.policy.harmless.add(in.target)
		}
	}
	if err != nil {
		s.mu.Lock()
		s.mu.dirt.astray = in
		s.mu.Unlock()
	}
}

// leadBack verifies that the session is where it was before the INSERT, and leads
// it back there if not.
func (s *SessionHandle) leadBack(ctx context.Context, in *insertion, call Call) (stayed bool, err error) {
	now, err := s.readRow(ctx, in.reader, call)
	if stayed = err == nil && now.equal(in.place); err == nil && !stayed {
		err = s.putPlaceBack(ctx, in.reader, in.place, call)
	}
	if err == nil {
		s.setMoved(in.moved)
	}
	return stayed, err
}

// isAstray reports whether it has to be verified yet, after an INSERT that
// failed, that the session is where it was.
func (s *SessionHandle) isAstray() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.dirt.astray != nil
}

// backInPlace does before a statement what could not be done after an INSERT. A
// session that is elsewhere would take the statement for another table's.
func (s *SessionHandle) backInPlace(ctx context.Context, call Call) error {
	s.mu.Lock()
	in := s.mu.dirt.astray
	s.mu.Unlock()
	if in == nil {
		return nil
	}
	if _, err := s.leadBack(ctx, in, Call{Tx: call.Tx}); err != nil {
		if FaultIn(err).KeepsConn() {
			err = &Error{Stage: StageProbe, Fault: FaultSession, Unsent: true, Err: fmt.Errorf("%w: an INSERT has led it elsewhere: %w", ErrSessionLost, err)}
		}
		return err
	}
	s.mu.Lock()
	s.mu.dirt.astray = nil
	s.mu.Unlock()
	return nil
}

// leadAstrayBack leads the session back to where it was before an INSERT, at the
// end of a session whose own moves stay.
func (s *SessionHandle) leadAstrayBack(ctx context.Context, d dirt) error {
	if d.astray == nil {
		return s.verifyUnmoved(ctx, d)
	}
	_, err := s.leadBack(ctx, d.astray, Call{})
	return err
}

func (s *SessionHandle) setMoved(moved bool) {
	s.mu.Lock()
	s.mu.dirt.moved = moved
	s.mu.Unlock()
}

// putNamespaceBack makes the session look for names where it did at its start.
// whole says that the search path was changed, and so has to be compared.
func (s *SessionHandle) putNamespaceBack(ctx context.Context, d dirt, whole bool) error {
	for _, r := range []reader{pathReader, placeReader} {
		if before, ok := d.before[r.key]; ok && (r.key == pathReader.key || !whole) {
			now, err := s.readRow(ctx, r, Call{})
			if err != nil || now.equal(before) {
				return err
			}
			return s.putPlaceBack(ctx, r, before, Call{})
		}
	}
	s.learn(ctx, pathReader)
	return errors.New("the catalogue or schema was changed, and the server could not tell it before")
}

// beforeTx finds out whether the server tells where a session is, while a query
// that fails spoils no transaction. A server that ignores transaction ids may
// also move a session in one.
func (s *SessionHandle) beforeTx(ctx context.Context) error {
	p := s.policy
	if p.tellsPlace() || p.harmless.has(noPlaces) || !s.untrusted() {
		return nil
	}
	return s.askPlace(ctx)
}

// placeReaders are asked in turn.
var placeReaders = []reader{pathReader, placeReader}

// askPlace finds out whether the server tells where a session is.
func (s *SessionHandle) askPlace(ctx context.Context) error {
	for _, r := range placeReaders {
		_, err := s.readRow(ctx, r, Call{})
		if err == nil || !FaultIn(err).KeepsConn() {
			return err
		}
	}
	_, err := s.tellsNoPlace(ctx)
	return err
}

// rememberPlace reads where names are looked for before an option is set, which
// may lead elsewhere. An option that is erased again leads to the server's
// default, and the session may have begun in another place.
func (s *SessionHandle) rememberPlace(ctx context.Context) error {
	if s.policy.OnReturn.mode == resetDiscard || s.policy.harmless.has(noPlaces) {
		return nil
	}
	known, err := s.rememberOne(ctx, pathReader)
	if err == nil && !known {
		_, err = s.rememberOne(ctx, placeReader)
	}
	return err
}

// putPlaceOfOptionsBack is for the end of options: see rememberPlace.
func (s *SessionHandle) putPlaceOfOptionsBack(ctx context.Context, d dirt) error {
	_, path := d.before[pathReader.key]
	_, place := d.before[placeReader.key]
	if !path && !place && s.policy.harmless.has(noPlaces) {
		return nil
	}
	return s.verifyUnmoved(ctx, d)
}

// verifyUnmoved is putNamespaceBack after an INSERT with parameters of which
// nobody knows whether it has moved the session. A server that tells of no
// place has none.
func (s *SessionHandle) verifyUnmoved(ctx context.Context, d dirt) error {
	err := s.putNamespaceBack(ctx, d, false)
	_, path := d.before[pathReader.key]
	_, place := d.before[placeReader.key]
	if err == nil || path || place {
		return err
	}
	if _, unread := s.readRow(ctx, placeReader, Call{}); unread == nil || !FaultIn(unread).KeepsConn() {
		return err
	}
	if none, _ := s.tellsNoPlace(ctx); none {
		return nil
	}
	return err
}

// putPlaceBack makes what r reads what it was before, and compares it.
func (s *SessionHandle) putPlaceBack(ctx context.Context, r reader, before reading, call Call) error {
	if r.key == pathReader.key {
		return s.putBack(ctx, r, before, "search_path", call)
	}
	if len(before) < 2 {
		return fmt.Errorf("%s cannot be put back", r.what)
	}
	if err := s.exec(ctx, "USE "+quoteName(before[0].text)+"."+quoteName(before[1].text), call); err != nil {
		return err
	}
	now, err := s.readRow(ctx, r, call)
	if err == nil && !now.equal(before) {
		err = fmt.Errorf("%s are not what they were", r.what)
	}
	return err
}
