package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// undo takes the effects of the session's statements back, the last first, and
// verifies what can have gone wrong on the way.
func (s *SessionHandle) undo(ctx context.Context, d dirt) error {
	if err := s.undoRefused(ctx, d); err != nil {
		return err
	}
	done := make(map[sqlscan.Effect]bool)
	temps := false
	for i := len(d.effects) - 1; i >= 0; i-- {
		e := d.effects[i]
		once := sqlscan.Effect{Kind: e.Kind, Name: e.Key()}
		if done[once] {
			continue
		}
		done[once] = true
		if err := s.undoEffect(ctx, e, d); err != nil {
			return err
		}
		temps = temps || e.Kind == sqlscan.EffectTempTable || e.Kind == sqlscan.EffectTempView
	}
	if d.ask {
		if err := s.askPlace(ctx); err != nil {
			return err
		}
	}
	if d.moved {
		if err := s.verifyUnmoved(ctx, d); err != nil {
			return err
		}
	}
	if temps {
		return s.verifyNoTemps(ctx)
	}
	return nil
}

// undoRefused puts settings back that a refused SET has changed all the same.
func (s *SessionHandle) undoRefused(ctx context.Context, d dirt) error {
	done := make(map[string]bool)
	for _, e := range d.refused {
		r := settingReader(e)
		if done[r.key] {
			continue
		}
		done[r.key] = true
		now, err := s.readRow(ctx, r, Call{})
		if err == nil && !now.equal(d.before[r.key]) {
			err = s.putBack(ctx, r, d.before[r.key], e.Name, Call{})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// undoEffect takes one effect back. Temporary objects are named in the
// catalogue that holds nothing else, because a bare name could be a permanent
// table's once the temporary one has gone with a rollback.
func (s *SessionHandle) undoEffect(ctx context.Context, e sqlscan.Effect, d dirt) error {
	switch e.Kind {
	case sqlscan.EffectSetting:
		r := settingReader(e)
		before, ok := d.before[r.key]
		if !ok {
			s.learn(ctx, r)
			return fmt.Errorf("%s was changed, and the server could not tell it before", r.what)
		}
		return s.putBack(ctx, r, before, e.Name, Call{})
	case sqlscan.EffectNamespace:
		return s.putNamespaceBack(ctx, d, e.Name == sqlscan.SearchPath)
	case sqlscan.EffectTempTable:
		return s.exec(ctx, "DROP TABLE IF EXISTS temp.main."+lastPart(e.Name), Call{})
	case sqlscan.EffectTempView:
		return s.exec(ctx, "DROP VIEW IF EXISTS temp.main."+lastPart(e.Name), Call{})
	case sqlscan.EffectPrepared:
		if had := d.before[preparedReader(e).key]; len(had) == 1 && had[0].text != "0" {
			return fmt.Errorf("the prepared statement %s was replaced", e.Name)
		}
		return s.exec(ctx, "DEALLOCATE "+e.Name, Call{})
	case sqlscan.EffectPivotType:
		return s.dropPivotTypes(ctx)
	case sqlscan.EffectUnknown, sqlscan.EffectSettings, sqlscan.EffectForgotten:
	}
	return errors.New("a statement left something that cannot be taken back")
}

func (s *SessionHandle) exec(ctx context.Context, sql string, call Call) error {
	if _, err := s.conn.Update(ctx, sql, call); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

// remember reads, before a statement is sent, what the statement changes and
// what could then not be read any more. What the server cannot tell costs the
// connection in the end.
func (s *SessionHandle) remember(ctx context.Context, script sqlscan.Script) error {
	if s.policy.OnReturn.mode != resetAuto {
		return nil
	}
	for _, e := range script.Effects() {
		var err error
		switch e.Kind { //nolint:exhaustive // the others are undone by their name
		case sqlscan.EffectSetting:
			_, err = s.rememberOne(ctx, settingReader(e))
		case sqlscan.EffectPrepared:
			_, err = s.rememberOne(ctx, preparedReader(e))
		case sqlscan.EffectNamespace:
			err = s.rememberPlace(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rememberOne reads with r unless it has been done before. Inside a transaction
// a query that fails would spoil it, so only what the server has answered
// before is asked there. What could not be read is not read later: it may have
// been changed by then.
func (s *SessionHandle) rememberOne(ctx context.Context, r reader) (known bool, err error) {
	s.mu.Lock()
	_, known = s.mu.dirt.before[r.key]
	late := s.mu.dirt.unread[r.key]
	tx := s.mu.tx.id
	inTx := s.mu.tx.phase != txNone
	s.mu.Unlock()
	switch {
	case known:
		return true, nil
	case late, inTx && !s.policy.readable.has(r.key):
		s.markUnread(r)
		return false, nil
	}
	row, err := s.readRow(ctx, r, Call{Tx: tx})
	switch {
	case err == nil:
		s.keepBefore(r, row)
		return true, nil
	case !inTx && FaultIn(err).KeepsConn():
		s.markUnread(r)
		return false, nil
	default:
		return false, err
	}
}

// markUnread notes that what r reads may be changed before it was read.
func (s *SessionHandle) markUnread(r reader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.dirt.unread == nil {
		s.mu.dirt.unread = make(map[string]bool)
	}
	s.mu.dirt.unread[r.key] = true
}

// keepBefore records what r has read at the session's start. The first counts,
// and none that comes too late.
func (s *SessionHandle) keepBefore(r reader, row reading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.mu.dirt.before[r.key]; known || s.mu.dirt.unread[r.key] {
		return
	}
	kept := maps.Clone(s.mu.dirt.before)
	if kept == nil {
		kept = make(map[string]reading)
	}
	kept[r.key] = row
	s.mu.dirt.before = kept
}

// putBack gives the setting that r reads, in its last column, its value of
// before. What is there in the end is compared. Servers may have a value of the
// session above one of the whole server, and a plain SET for either.
func (s *SessionHandle) putBack(ctx context.Context, r reader, before reading, name string, call Call) error {
	ways := []string{"RESET " + name, "RESET SESSION " + name}
	if value := before[len(before)-1]; !value.null {
		set := " " + name + " = " + literal(value.text)
		ways = []string{"SET" + set, "RESET SESSION " + name, "SET SESSION" + set, "RESET " + name}
	}
	var failed error
	for _, sql := range ways {
		if err := s.exec(ctx, sql, call); err != nil {
			if !FaultIn(err).KeepsConn() {
				return err
			}
			failed = errjoin.Join(failed, err)
			continue
		}
		now, err := s.readRow(ctx, r, call)
		switch {
		case err != nil:
			return err
		case now.equal(before):
			return nil
		}
	}
	return errjoin.Join(fmt.Errorf("%s is not what it was", r.what), failed)
}

// lastPart is the object's own name in a qualified one, quotes kept.
func lastPart(name string) string {
	inQuotes := false
	for i := len(name) - 1; i >= 0; i-- {
		switch {
		case name[i] == '"':
			inQuotes = !inQuotes
		case name[i] == '.' && !inQuotes:
			return name[i+1:]
		}
	}
	return name
}

func quoteName(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
