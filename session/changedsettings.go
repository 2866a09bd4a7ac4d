package session

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/flightpool/flightpool/internal/sqlscan"
)

// changedSettings are the settings that sessions have changed and not put back yet, each with
// the value that it had before the first of them came. To a session that comes later a setting of
// the whole server is what another has made of it, which is not to be put back. The zero value is
// ready for use.
type changedSettings struct {
	mu    sync.Mutex
	byKey map[string]*changedSetting
	holds uint64 // so far

	// objects counts the texts that have begun to make, alter or drop what statements of others may name, and their ends or
	// those of their transactions: servers may give the rows of a statement by the columns that it had when it was prepared
	// (GizmoSQL).
	objects atomic.Uint64
}

type changedSetting struct {
	holders int
	value   stateValues // nil until one of them has read it
}

// hold is for a session that is about to read a setting and to change it.
func (c *changedSettings) hold(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKey == nil {
		c.byKey = make(map[string]*changedSetting)
	}
	if c.byKey[key] == nil {
		c.byKey[key] = &changedSetting{}
	}
	c.byKey[key].holders++
	c.holds++
}

// asTheyWere reports whether no session holds a setting. holds is another once one has.
func (c *changedSettings) asTheyWere() (holds uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.holds, len(c.byKey) == 0
}

// first is what the first of those who hold a setting has read; row is what this one has. One that is not
// held any more is that of a call whose connection was given up before it had read it.
func (c *changedSettings) first(key string, row stateValues) stateValues {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := c.byKey[key]
	if held == nil {
		return row
	}
	if held.value == nil {
		held.value = row
	}
	return held.value
}

// release is for a session that has put them back.
func (c *changedSettings) release(keys map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range keys {
		if c.byKey[key].holders--; c.byKey[key].holders == 0 {
			delete(c.byKey, key)
		}
	}
}

type sharedSettingsKey struct{}

// ShareSettings is for an owner of several pools of one server, such as those of its users: sessions of the
// pools that are made with the context know what those of the others have changed.
func ShareSettings(ctx context.Context) context.Context {
	return context.WithValue(ctx, sharedSettingsKey{}, &changedSettings{})
}

// changedSettings are those of all sessions of the server, as far as is known, and the key of a setting
// there. Pools of one owner may lead to several servers.
func (p *Policy) changedSettings(key string) (*changedSettings, string) {
	if c := p.allChangedSettings(); c != &p.changed {
		return c, p.Target + " " + key
	}
	return &p.changed, key
}

// allChangedSettings is what changedSettings looks at, for every key.
func (p *Policy) allChangedSettings() *changedSettings {
	p.findShared.Do(func() { // once: Value may be code of the owner's, which panics
		p.shared = &p.changed
		if shared, ok := p.OwnerContext.Value(sharedSettingsKey{}).(*changedSettings); ok && p.Target != "" {
			p.shared = shared
		}
	})
	return p.shared
}

// rememberSetting is rememberRow of a setting that is going to be changed. Where another session
// that has changed it is not over and had found another value, it is one of the whole server, and that
// value is put back; or each session has its own, and this connection is given up.
func (s *SessionHandle) rememberSetting(ctx context.Context, r stateQuery) error {
	changed, key := s.policy.changedSettings(r.key)
	holds := s.holdSetting(changed, key)
	known, err := s.rememberRow(ctx, r)
	if !known || !holds { // as it is with an error
		return err
	}
	s.mu.Lock()
	row := s.mu.sideEffects.initial[r.key]
	s.mu.Unlock()
	first := changed.first(key, row)
	if first.equal(row) {
		return nil
	}
	s.mu.Lock()
	initial := maps.Clone(s.mu.sideEffects.initial)
	initial[r.key] = first
	s.mu.sideEffects.initial = initial
	s.mu.Unlock()
	s.markDiscard(fmt.Errorf("%s was changed by another session at the same time", r.subject))
	return nil
}

// holdSetting holds a setting until the connection is released; false: it does already, or
// nothing is going to be put back.
func (s *SessionHandle) holdSetting(changed *changedSettings, key string) bool {
	changed.hold(key)
	if s.recordHeld(changed, key) {
		return true
	}
	changed.release(map[string]bool{key: true})
	return false
}

// recordHeld has a setting released with the connection.
func (s *SessionHandle) recordHeld(changed *changedSettings, key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.mu.held
	if s.preparing || s.mu.releaseConn == nil || held[key] {
		return false
	}
	if held == nil {
		held = make(map[string]bool)
		releaseConn := s.mu.releaseConn
		s.mu.held = held
		s.mu.releaseConn = func(discard error) {
			s.settleObjects()
			changed.release(held)
			releaseConn(discard)
		}
	}
	held[key] = true
	return true
}

// holdSettings holds those that a text is going to change, where the owner's statements put them back, or nobody does.
func (s *SessionHandle) holdSettings(script sqlscan.Script) {
	for _, e := range script.Effects() {
		if e.IsSetting() {
			s.holdSetting(s.policy.changedSettings(settingQuery(e).key))
		}
	}
}

// holdObjects is for a text that is about to make, alter or drop what statements of others may name. Until the connection
// is released none is kept that is prepared, and what was kept before is prepared again.
func (s *SessionHandle) holdObjects(script sqlscan.Script) {
	if s.preparing || !script.MayChangeObjects() && !script.MayChangeSharedObjects() {
		return
	}
	s.mu.Lock()
	s.mu.ownObjects++
	s.mu.ownOpen = true
	s.mu.Unlock()
	if !script.MayChangeSharedObjects() {
		return
	}
	changed, key := s.policy.changedSettings("(objects)")
	s.holdSetting(changed, key)
	s.mu.Lock()
	s.mu.sharedObjects = changed
	s.mu.Unlock()
	changed.objects.Add(1)
}

// settleObjects is for the end of a change: others see it from here on, or it has come to nothing, or nobody knows.
func (s *SessionHandle) settleObjects() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settleObjectsLocked()
}

// settleObjectsLocked is settleObjects. The lock is held.
func (s *SessionHandle) settleObjectsLocked() {
	if s.mu.ownOpen {
		s.mu.ownOpen = false
		s.mu.ownObjects++
	}
	if changed := s.mu.sharedObjects; changed != nil {
		s.mu.sharedObjects = nil
		changed.objects.Add(1)
	}
}

// objectsChanged is the count of all sessions of the pool.
func (s *SessionHandle) objectsChanged() uint64 { return s.policy.allChangedSettings().objects.Load() }

// objectsNow are the changes of objects that a statement has behind it that is prepared from here on. One that is open
// now counts once more at its end.
func (s *SessionHandle) objectsNow() preparedBehind {
	behind := preparedBehind{changes: s.objectsChanged()}
	s.mu.Lock()
	defer s.mu.Unlock()
	behind.own = s.mu.ownObjects
	behind.inTx = s.mu.tx.openOnServer() && s.mu.tx.objects != behind.changes
	return behind
}

// preparedBehind are the changes of objects that a statement was prepared behind, those of its session's own
// temporary ones apart. inTx says that its transaction may not have seen all of them.
type preparedBehind struct {
	changes, own uint64
	inTx         bool
}

// stale reports whether the statement may have to be another now. What is changed while it is executed, no count tells.
func (b preparedBehind) stale(s *SessionHandle, sameTx bool) bool {
	s.mu.Lock()
	own := s.mu.ownObjects
	s.mu.Unlock()
	return b.own != own || b.inTx && !sameTx || b.changes != s.objectsChanged()
}
