package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/flightpool/flightpool/internal/sqlscan"
)

// dirt is what the statements of a session leave behind that the next borrower
// could see.
type dirt struct {
	effects []sqlscan.Effect
	refused []sqlscan.Effect   // settings that a refused statement may have changed: DuckDB sets some before it looks at the value
	before  map[string]reading // what readers of the session saw before its first change, by their key
	unread  map[string]bool    // keys of readers that could not be asked before a change: too late since
	options map[string]any     // session options as they were before SetOption
	moved   bool               // a bulk load may have moved the session to another catalogue
	astray  *insertion         // the one after which that was not verified, though the place before it is known
	ask     bool               // it is to be found out whether the server tells where a session is
	used    bool               // something other than a plain read was sent
}

// add records what a text leaves behind. done says that all of it has run:
// otherwise it may have left only a part, and taken nothing back.
func (d *dirt) add(script sqlscan.Script, done bool) {
	d.used = d.used || !script.ReadOnly() || len(script.Effects()) > 0
	for _, e := range script.Effects() {
		if e.Kind == sqlscan.EffectForgotten {
			e = d.forget(e, done)
		}
		if e.Kind != sqlscan.EffectForgotten {
			d.effects = append(d.effects, e)
		}
	}
}

// addRefused records what a single statement may have left that the server has
// refused: settings, as far as they were read before. One that was not is none of
// the server's.
func (d *dirt) addRefused(script sqlscan.Script) {
	for _, e := range script.Effects() {
		_, read := d.before[settingReader(e).key]
		switch {
		case e.Kind == sqlscan.EffectSettings:
			d.effects, d.used = append(d.effects, e), true
		case e.Kind == sqlscan.EffectSetting && read:
			d.refused = append(d.refused, e)
		}
	}
}

// elsewhere reports whether a call of the caller's may have changed where names
// are looked for.
func (d *dirt) elsewhere() bool {
	return len(d.options) > 0 || slices.ContainsFunc(d.effects, func(e sqlscan.Effect) bool { return e.Kind == sqlscan.EffectNamespace })
}

// forget is e if what it takes back was on record, which it no longer is when
// that is done, else an unknown effect: it took something away that was there
// before.
func (d *dirt) forget(e sqlscan.Effect, done bool) sqlscan.Effect {
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

// sendsToGiveBack reports whether anything has to be sent before the connection
// is returned, or for its return. The state is cleaning.
func (s *SessionHandle) sendsToGiveBack() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.lost != nil:
		return false
	case s.mu.discard != nil:
		return s.mu.tx.open() || s.mu.proof.stmt != nil
	default:
		return s.policy.ReturnWaits || s.unclean(s.mu.dirt)
	}
}

// touched reports whether anything was done that a reset by mode undoes.
func (s *SessionHandle) touched(d dirt) bool { return d.used || len(d.options) > 0 || !s.stateless }

// unclean reports whether the session was left in a state that the next borrower
// must not get, or may have been. The lock is held.
func (s *SessionHandle) unclean(d dirt) bool {
	return s.mu.tx.open() || len(s.mu.prepared) > 0 || s.mu.doubt || s.mu.proof.stmt != nil || s.mustReset(d, s.touched(d))
}

// clean takes back all that the session left. An error means that the
// connection must be discarded.
func (s *SessionHandle) clean() error {
	s.mu.Lock()
	tx, d, doubt, unclean := s.mu.tx, s.mu.dirt, s.mu.doubt, s.unclean(s.mu.dirt)
	prepared := s.mu.prepared
	s.mu.prepared = nil
	s.mu.Unlock()
	touched := s.touched(d)
	thrown := s.policy.OnReturn.mode == resetDiscard && touched
	if !thrown && !unclean {
		return nil // the way of nearly every call: nothing was left, nothing is sent
	}
	ctx, stop := s.policy.bounded()
	defer stop()
	if thrown {
		_ = s.endOpen(ctx, tx, nil)
		return errors.New("discarded after use, as configured")
	}
	start := time.Now()
	err := s.endOpen(ctx, tx, prepared)
	if err == nil && s.mustReset(d, touched) {
		err = s.reset(ctx, d)
	}
	if err == nil && doubt {
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

func (s *SessionHandle) mustReset(d dirt, touched bool) bool {
	switch s.policy.OnReturn.mode {
	case resetAuto:
		return len(d.effects) > 0 || len(d.refused) > 0 || len(d.options) > 0 || d.moved || d.ask
	case resetSQL:
		return touched
	default:
		return len(d.options) > 0 || d.moved
	}
}

// reset takes back what was left. Options are put back under every mode, since a
// call of ours has set them, and the place after an INSERT with parameters, since
// no text of the caller's has left it: both before the owner's statements.
func (s *SessionHandle) reset(ctx context.Context, d dirt) error {
	if len(d.options) > 0 {
		if err := s.putOptionsBack(ctx, d.options); err != nil {
			return fmt.Errorf("put session options back: %w", err)
		}
		if err := s.putPlaceOfOptionsBack(ctx, d); err != nil {
			return err
		}
	}
	if d.moved && s.policy.OnReturn.mode != resetAuto {
		if err := s.leadAstrayBack(ctx, d); err != nil {
			return err
		}
	}
	switch s.policy.OnReturn.mode {
	case resetAuto:
		return s.undo(ctx, d)
	case resetSQL:
		for _, sql := range s.policy.OnReturn.Statements() {
			if err := s.exec(ctx, sql, Call{}); err != nil {
				return err
			}
		}
	case resetDiscard, resetNone:
	}
	return nil
}
