package session

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/effect"
	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// restoreSetting gives the setting that an effect has changed its value of before.
func (s *SessionHandle) restoreSetting(ctx context.Context, e sqlscan.Effect, d sideEffects) error {
	r := settingQuery(e)
	before, ok := d.initial[r.key]
	if !ok {
		s.learnAnswered(ctx, r)
		return fmt.Errorf("%s was changed, and the server could not tell it before", r.subject)
	}
	return s.restore(ctx, r, before, restoring(e.Name, before[len(before)-1], d.changedValues(r.key)), backend.Call{})
}

// restore gives the setting that r reads, in its last column, its value of
// before. What is there in the end is compared. Servers may have a value of the session
// above one of the whole server, and a plain SET for either. So each is tried and
// compared until one has done it. A setting that had no value is reset only, since no
// literal stands for none.
//
// The session is not lent before the comparison, but the setting may be one of the whole
// server. So where nothing has done it the last word is a SET: a RESET has put the server's default
// in the place of what its operator had set.
func (s *SessionHandle) restore(ctx context.Context, r stateQuery, before stateValues, way restoration, call backend.Call) error {
	var failed error
	for _, sql := range way.statements {
		err := s.execSecret(ctx, sql, call)
		if err != nil && sql == way.resetsOwn && backend.FaultIn(err).KeepsConn() {
			err = s.execSecret(ctx, sql, call) // one refusal may be a failure of the server's own
		}
		if err != nil {
			if !backend.FaultIn(err).KeepsConn() {
				return err
			}
			failed = errjoin.Join(failed, err)
			continue
		}
		now, err := s.runStateQuery(ctx, r, call)
		switch {
		case err != nil:
			return err
		case now.equal(before):
			return nil
		case sql == way.resetsOwn && way.conclusive:
			return fmt.Errorf("%s has the server's value, and the session had begun with one of its own, or the server's is another now", r.subject)
		}
	}
	if way.last != "" {
		_ = s.execSecret(ctx, way.last, call) // the connection is given up in any case
	}
	return errjoin.Join(fmt.Errorf("%s is not what it was", r.subject), failed)
}

// restoreSettings puts back what is not as it was of the settings of a session that is given up,
// other than those that were tried, as far as that goes: servers have some for all sessions, which
// do not end with one. What OnConnect has set stays, also where it fails: other sessions have set it, too.
func (s *SessionHandle) restoreSettings(ctx context.Context, d sideEffects, tried map[string]bool) {
	if s.policy.OnReturn.mode != resetAuto {
		return
	}
	for _, e := range slices.Backward(d.leftSettings()) {
		if tried[settingQuery(e).key] || s.preparing && e.Kind != sqlscan.EffectTxPolicy {
			continue
		}
		err := s.restoreIfChanged(ctx, e, d)
		if ctx.Err() != nil || s.conn.Lost() != nil || backend.FaultIn(err) == backend.FaultAuth {
			return
		}
	}
}

// cleanBeforeLoss ends what may outlive the connection of a session that is given up although it answers: settings
// of the server, and a transaction of a statement's steps if it may be open. That one is known by no id and would keep its
// locks, and where a token is the session the next connection with it would be in it.
func (s *SessionHandle) cleanBeforeLoss(mayBeInTx bool) {
	s.mu.Lock()
	d := s.mu.sideEffects
	s.mu.Unlock()
	ctx, stop := s.policy.closeContext()
	defer stop()
	_ = callback.Isolate(ownersCode, func() error {
		if mayBeInTx {
			_ = s.endStrayTx(ctx) // the session is given up in any case
		}
		s.restoreSettings(ctx, d, nil)
		return nil
	})
}

// restoreIfChanged puts one setting back, unless it is as it was. A value of the session's own may hide
// that the server's is not.
func (s *SessionHandle) restoreIfChanged(ctx context.Context, e sqlscan.Effect, d sideEffects) error {
	if r := settingQuery(e); e.IsSetting() && !d.changedValues(r.key).own {
		now, err := s.runStateQuery(ctx, r, backend.Call{})
		if err != nil || now.equal(d.initial[r.key]) {
			return err
		}
	}
	return s.undoEffect(ctx, e, d)
}

// resetTxPolicy gives the setting its default, as the server itself does where such a statement
// succeeds. A server without it is no DuckDB that has it.
func (s *SessionHandle) resetTxPolicy(ctx context.Context, e sqlscan.Effect) error {
	r := settingQuery(e)
	_, err := s.runStateQuery(ctx, r, backend.Call{})
	if err != nil && backend.FaultIn(err).KeepsConn() { // one refusal may be a failure of the server's own
		_, err = s.runStateQuery(ctx, r, backend.Call{})
	}
	switch {
	case err != nil && backend.FaultIn(err).KeepsConn() && !effect.NoVerdict(err) && !s.policy.answeredQueries.has(r.key):
		return nil
	case err != nil:
		return err
	}
	return s.exec(ctx, "RESET "+e.Name, backend.Call{})
}

// restoration is what may give a setting its value.
type restoration struct {
	statements []string // in the order in which they are tried
	resetsOwn  string   // the one of them without which a value of the session's own could stay
	conclusive bool     // behind it, unless it was refused, no other is tried
	last       string   // what is left to say when none has done it
}

// changedValues says which values of a setting statements have changed.
type changedValues struct {
	own     bool // that of the session alone
	anyones bool // perhaps that of the whole server
}

// restoring is the restoration of a setting. Only one that may have been changed for the whole server is
// given a plain SET, which the whole server may hear. None is given a value of the session's own, and one
// that it has been given is reset before anything is compared: it hides what others make of the
// server's, so that nobody could see whether a later change was put back. Servers that refuse RESET SESSION
// have values of the session alone.
func restoring(name string, value cell, changed changedValues) restoration {
	set, sizedSet := " "+name+" = "+literal(value.text), ""
	if size := sizeWithin(value.text); size != "" {
		sizedSet = " " + name + " = " + literal(size)
	}
	reset, resetSession, last := "RESET "+name, "RESET SESSION "+name, "SET"+cmp.Or(sizedSet, set)
	switch {
	case !changed.anyones && value.null:
		return restoration{statements: []string{resetSession, reset}, resetsOwn: resetSession, conclusive: true}
	case !changed.anyones:
		return restoration{statements: []string{resetSession, "SET SESSION" + set}, resetsOwn: resetSession, conclusive: true}
	case changed.own && value.null:
		return restoration{statements: []string{resetSession, reset}, resetsOwn: resetSession}
	case value.null:
		return restoration{statements: []string{reset, resetSession}}
	case changed.own:
		return restoration{statements: []string{resetSession, "SET" + set, reset}, resetsOwn: resetSession, last: last}
	default:
		return restoration{statements: []string{"SET" + set, resetSession, reset}, last: last}
	}
}

var roundedSize = regexp.MustCompile(`^(\d+\.\d)( [KMGTP]iB)$`)

// sizeWithin is a size that DuckDB tells as text. It rounds down to a tenth, and so text itself may be told as the
// tenth below: 2 GB are "1.8 GiB", and these are "1.7 GiB". Empty: text is no such size.
func sizeWithin(text string) string {
	parts := roundedSize.FindStringSubmatch(text)
	if parts == nil {
		return ""
	}
	return parts[1] + "5" + parts[2]
}
