package session

import (
	"slices"

	"github.com/flightpool/flightpool/internal/sqlscan"
)

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
	failedIngest       bool                   // an ingestion outside of transactions has failed, whose rows may be in a temporary table of the server's own
	changedObjects     bool                   // something was created, altered or dropped, which may be temporary
}

// add records what a text leaves behind. done says that all of it has run: otherwise it
// may have left only a part, and taken nothing back. A text that did not run to its end
// is taken to have left everything that it could. A DEALLOCATE is the exception: it
// takes back what is on record, and only once it is done. inTx says that it was run in a
// transaction.
func (d *sideEffects) add(script sqlscan.Script, done, inTx bool) {
	d.used = d.used || !script.PlainRead()
	d.changedObjects = d.changedObjects || script.MayChangeObjects()
	for _, e := range script.Effects() {
		if e.Kind == sqlscan.EffectDeallocate {
			d.deallocate(e, done)
			continue
		}
		d.effects = append(d.effects, e)
	}
	if inTx && !done && script.RunsInSteps() {
		d.effects = append(d.effects, sqlscan.TxPolicy())
	}
}

// addRefused records what a single statement may have left that the server has refused:
// settings, as far as they were read before. A setting that was not read before does
// not exist on the server, unless none are read (readsNone: ResetAuto alone does). Then the session
// counts as used: what its owner does behind every call that is no plain read is done here, too. Settings
// that are linked to others change before the server looks at the value as well.
func (d *sideEffects) addRefused(script sqlscan.Script, readsNone bool) {
	d.used = d.used || readsNone && !script.PlainRead()
	for _, e := range script.Effects() {
		_, read := d.initial[settingQuery(e).key]
		switch {
		case e.Kind == sqlscan.EffectLinkedSettings, e.IsSetting() && readsNone:
			d.effects, d.used = append(d.effects, e), true
		case e.IsSetting() && read:
			d.refusedSettings = append(d.refusedSettings, e)
		}
	}
}

// any reports whether the session may differ from a new one.
func (d *sideEffects) any() bool {
	return len(d.effects)+len(d.refusedSettings)+len(d.options) > 0 || d.mayHaveMoved
}

// leftSettings are the settings that statements have changed, or may have, of which is known what puts
// them back, each once.
func (d *sideEffects) leftSettings() (settings []sqlscan.Effect) {
	seen := make(map[string]bool)
	for _, e := range slices.Concat(d.effects, d.refusedSettings) {
		key := settingQuery(e).key
		_, known := d.initial[key]
		if (known && e.IsSetting() || e.Kind == sqlscan.EffectSecret || e.Kind == sqlscan.EffectTxPolicy) && !seen[key] {
			seen[key] = true
			settings = append(settings, e)
		}
	}
	return settings
}

// changedValues are the values of a setting that were changed, or may have been.
func (d *sideEffects) changedValues(key string) (changed changedValues) {
	for _, e := range slices.Concat(d.effects, d.refusedSettings) {
		if e.IsSetting() && e.SettingKey() == key {
			changed.own = changed.own || e.Kind == sqlscan.EffectSessionSetting
			changed.anyones = changed.anyones || e.Kind != sqlscan.EffectSessionSetting
		}
	}
	return changed
}

// namespaceChangedByCaller reports whether a call of the caller's may have changed where names
// are looked for.
func (d *sideEffects) namespaceChangedByCaller() bool {
	return len(d.options) > 0 || slices.ContainsFunc(d.effects, func(e sqlscan.Effect) bool { return e.Kind == sqlscan.EffectNamespace })
}

// deallocate records a DEALLOCATE. What it takes back is not on record any more once it is done. The
// name stays there where the session is not known to have begun without it: then
// its PREPARE may have replaced a statement of that name, which has gone with it. A name that is not on
// record was there before.
func (d *sideEffects) deallocate(e sqlscan.Effect, done bool) {
	at := slices.IndexFunc(d.effects, func(have sqlscan.Effect) bool { return have.Kind == sqlscan.EffectPrepared && have.Key() == e.Key() })
	switch {
	case at < 0:
		d.effects = append(d.effects, sqlscan.Effect{Kind: sqlscan.EffectUnknown})
	case done:
		d.effects = append(d.effects[:at:at], d.effects[at+1:]...)
		if !noneOf(d.initial[preparedNameQuery(e).key]) && !slices.Contains(d.effects, e) {
			d.effects = append(d.effects, e)
		}
	}
}

// noneOf reports whether the answer to a preparedNameQuery is that there is none. It is not, of one that was not asked.
func noneOf(had stateValues) bool { return len(had) == 1 && had[0].text == "0" }
