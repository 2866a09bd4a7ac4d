package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/effect"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// undoEffects takes the effects of the session's statements back, the last first, and
// verifies what can have gone wrong on the way. An error of it costs the connection.
// The last comes first since a later statement may have built on an earlier one, and
// one that stands twice is undone once, to its value at the start. Checks come after
// all undoing: they are of the whole session. tried gets the keys of the settings that
// it has come to.
func (s *SessionHandle) undoEffects(ctx context.Context, d sideEffects, tried map[string]bool) error {
	if err := s.undoRefused(ctx, d, tried); err != nil {
		return err
	}
	done := make(map[sqlscan.Effect]bool)
	temps := d.changedObjects && s.tempsAtStart() != noTemps
	for i := len(d.effects) - 1; i >= 0; i-- {
		e := d.effects[i]
		once := sqlscan.Effect{Kind: e.Kind, Name: e.Key()}
		if e.IsSetting() {
			once.Kind = sqlscan.EffectSetting
		}
		if done[once] {
			continue
		}
		done[once] = true
		if e.IsSetting() || e.Kind == sqlscan.EffectSecret || e.Kind == sqlscan.EffectTxPolicy {
			tried[settingQuery(e).key] = true
		}
		if err := s.undoEffect(ctx, e, d); err != nil {
			return err
		}
		temps = temps || e.Kind == sqlscan.EffectTempTable || e.Kind == sqlscan.EffectTempView
	}
	if d.mustLearnNamespace {
		if err := s.learnNamespaceSupport(ctx); err != nil {
			return err
		}
	}
	if d.mayHaveMoved {
		if err := s.verifyNamespace(ctx, d); err != nil {
			return err
		}
	}
	switch {
	case temps:
		return s.verifyTemps(ctx)
	case d.failedIngest:
		return s.verifyIngestion(ctx)
	default:
		return nil
	}
}

// undoRefused puts settings back that a refused SET has changed all the same.
func (s *SessionHandle) undoRefused(ctx context.Context, d sideEffects, tried map[string]bool) error {
	for _, e := range d.refusedSettings {
		r := settingQuery(e)
		if tried[r.key] {
			continue
		}
		tried[r.key] = true
		now, err := s.runStateQuery(ctx, r, backend.Call{})
		if err == nil && !now.equal(d.initial[r.key]) {
			err = s.restoreSetting(ctx, e, d)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// undoEffect takes one effect back. Temporary objects are named in the catalogue that
// holds nothing else, because a bare name could be a permanent table's once the
// temporary one has gone with a rollback. A prepared name that the session had at its
// start was replaced, and its statement is nowhere to be had.
func (s *SessionHandle) undoEffect(ctx context.Context, e sqlscan.Effect, d sideEffects) error {
	switch e.Kind {
	case sqlscan.EffectSetting, sqlscan.EffectSessionSetting, sqlscan.EffectImpliedSetting:
		return s.restoreSetting(ctx, e, d)
	case sqlscan.EffectNamespace:
		return s.restoreNamespace(ctx, d, e.Name == sqlscan.SearchPath)
	case sqlscan.EffectTempTable:
		return s.dropTemp(ctx, "TABLE", e)
	case sqlscan.EffectTempView:
		return s.dropTemp(ctx, "VIEW", e)
	case sqlscan.EffectPrepared:
		if err := s.verifyNotReplaced(ctx, e, d); err != nil {
			return err
		}
		return s.exec(ctx, "DEALLOCATE "+e.Name, backend.Call{})
	case sqlscan.EffectDeallocate:
		return s.verifyNotReplaced(ctx, e, d)
	case sqlscan.EffectPivotType:
		return s.dropPivotTypes(ctx)
	case sqlscan.EffectTxPolicy:
		return s.resetTxPolicy(ctx, e)
	case sqlscan.EffectSecret:
		if err := s.execSecret(ctx, "RESET "+e.Name, backend.Call{}); err != nil {
			return err
		}
		return fmt.Errorf("the setting %s was changed, which servers do not show", e.Name)
	case sqlscan.EffectUnknown, sqlscan.EffectLinkedSettings:
	}
	return errors.New("a statement left something that cannot be taken back")
}

// verifyNotReplaced makes sure that the session has begun without a prepared name. Of a server that tells the
// names only now that is not known.
func (s *SessionHandle) verifyNotReplaced(ctx context.Context, e sqlscan.Effect, d sideEffects) error {
	r := preparedNameQuery(e)
	had, known := d.initial[r.key]
	if !known {
		_, err := s.runStateQuery(ctx, r, backend.Call{})
		switch {
		case err == nil:
			return fmt.Errorf("the prepared statement %s may have replaced another, which the server could not tell before", e.Name)
		case !backend.FaultIn(err).KeepsConn():
			return err
		}
	}
	if known && !noneOf(had) {
		return fmt.Errorf("the prepared statement %s was replaced", e.Name)
	}
	return nil
}

// rememberState reads, before a statement is sent, what the statement changes and what
// could then not be read any more. What the server cannot tell costs the connection in
// the end. Only ResetAuto puts settings back, so nothing is read under the other modes: what is
// prepared beside the statement is not kept, all the same.
// It runs in front of the statement, within the caller's time; after an error the
// statement is not sent.
func (s *SessionHandle) rememberState(ctx context.Context, script sqlscan.Script) error {
	s.holdObjects(script)
	if s.policy.OnReturn.mode != resetAuto {
		s.holdSettings(script)
		return nil
	}
	for _, e := range script.Effects() {
		var err error
		switch e.Kind { //nolint:exhaustive // the others are undone by their name
		case sqlscan.EffectSetting, sqlscan.EffectSessionSetting, sqlscan.EffectImpliedSetting:
			err = s.rememberSetting(ctx, settingQuery(e))
		case sqlscan.EffectPrepared:
			_, err = s.rememberRow(ctx, preparedNameQuery(e))
		case sqlscan.EffectNamespace:
			err = s.rememberNamespace(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rememberRow reads with r unless it has been done before. Inside a transaction a query
// that fails would abort it, so only what the server has answered before is asked
// there. What could not be read is not read later: it may have been changed by then.
// known says that there is a value to go back to. An error inside a transaction has
// probably aborted it, and one of the connection has ended it: the call fails with
// either.
func (s *SessionHandle) rememberRow(ctx context.Context, r stateQuery) (known bool, err error) {
	s.mu.Lock()
	_, known = s.mu.sideEffects.initial[r.key]
	late := s.mu.sideEffects.unknownInitial[r.key]
	tx := s.mu.tx.id
	inTx := s.mu.tx.phase != txNone
	s.mu.Unlock()
	switch {
	case known:
		return true, nil
	case late, inTx && !s.policy.answers(r):
		s.markUnknownInitial(r)
		return false, nil
	}
	row, err := s.runStateQuery(ctx, r, backend.Call{Tx: tx})
	switch {
	case err == nil:
		s.recordInitial(r, row)
		return true, nil
	case !inTx && backend.FaultIn(err).KeepsConn():
		s.markUnknownInitial(r)
		return false, nil
	default:
		return false, err
	}
}

// markUnknownInitial notes that what r reads may be changed before it was read.
func (s *SessionHandle) markUnknownInitial(r stateQuery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.sideEffects.unknownInitial == nil {
		s.mu.sideEffects.unknownInitial = make(map[string]bool)
	}
	s.mu.sideEffects.unknownInitial[r.key] = true
}

// recordInitial records what r has read at the session's start. The first counts, and
// none that comes too late. A copy of the map may be in use without the lock, so it is
// replaced, not written to.
func (s *SessionHandle) recordInitial(r stateQuery, row stateValues) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.mu.sideEffects.initial[r.key]; known || s.mu.sideEffects.unknownInitial[r.key] {
		return
	}
	kept := maps.Clone(s.mu.sideEffects.initial)
	if kept == nil {
		kept = make(map[string]stateValues)
	}
	kept[r.key] = row
	s.mu.sideEffects.initial = kept
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

// pivotTypesQuery are what DuckDB has made of the values that it found for a PIVOT. It
// makes them also for a PIVOT that then fails, and keeps them. min gives one name at a
// time, since the answer of a state query is one row.
var pivotTypesQuery = stateQuery{columns: 2, key: "(pivot)", subject: "the types of PIVOT",
	sql: "SELECT count(*), min(type_name) FROM duckdb_types() WHERE database_name = 'temp' AND starts_with(type_name, '__pivot_enum_')"}

// maxPivotTypes bounds what is dropped one by one.
const maxPivotTypes = 64

// dropPivotTypes drops them until there is none. A server without this catalogue
// function, which is asked twice since one failure may be its own, has no such
// types; one that has answered before has the function.
func (s *SessionHandle) dropPivotTypes(ctx context.Context) error {
	for range maxPivotTypes {
		row, err := s.runStateQuery(ctx, pivotTypesQuery, backend.Call{})
		if err != nil && backend.FaultIn(err).KeepsConn() {
			row, err = s.runStateQuery(ctx, pivotTypesQuery, backend.Call{})
		}
		switch {
		case err != nil && backend.FaultIn(err).KeepsConn() && !effect.NoVerdict(err) && !s.policy.answeredQueries.has(pivotTypesQuery.key):
			return nil
		case err != nil || row[0].text == "0":
			return err
		}
		if err := s.exec(ctx, "DROP TYPE temp.main."+quoteName(row[1].text), backend.Call{}); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s are more than %d", pivotTypesQuery.subject, maxPivotTypes)
}
