package testserver

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Point is a moment at which a fault can strike: an RPC or action by its name
// ("GetFlightInfo", "DoPut", "BeginTransaction", "CancelFlightInfo", ...), or
// one of the moments below.
type Point string

// Points that are not simply RPCs or actions.
const (
	OnConnect   Point = "connect"   // a connection was accepted; nothing is read yet
	OnSession   Point = "session"   // a session is about to be opened
	OnStatement Point = "statement" // the engine is about to run a statement, or (After) has run it
	OnBatch     Point = "batch"     // a batch of a DoGet is about to be sent
)

// Some RPCs and actions.
const (
	OnHandshake     Point = "Handshake"
	OnGetFlightInfo Point = "GetFlightInfo"
	OnDoGet         Point = "DoGet"
	OnDoPut         Point = "DoPut"
	OnListActions   Point = "ListActions"
	OnBegin         Point = "BeginTransaction"
	OnEnd           Point = "EndTransaction"
	OnPrepare       Point = "CreatePreparedStatement"
	OnCancel        Point = "CancelFlightInfo"
	OnCloseSession  Point = "CloseSession"
)

// Fault is something that goes wrong: an effect, and where and how often it
// strikes. Faults that match the same moment strike in the order of Set, until
// one fails the call.
type Fault struct {
	On Point
	// After strikes when the work is done, before its reply is sent: the
	// lost reply.
	After bool
	// SQL narrows the fault to statements whose text contains it. It can
	// match at GetFlightInfo, DoGet, DoPut, CreatePreparedStatement,
	// OnStatement and OnBatch.
	SQL string
	// Skip lets that many matching moments pass first.
	Skip int
	// Times ends the fault after it has struck that often; 0 is no end.
	Times int
	Do    Effect
}

// Faults are the faults of a Server. They can be set and cleared while it
// runs, from any goroutine.
type Faults struct {
	srv    *Server
	active atomic.Bool // whether list has entries: the way past the lock

	mu   sync.Mutex // guards list and what is in it
	list []*SetFault
}

// SetFault is a fault that was set.
type SetFault struct {
	Fault
	faults  *Faults
	cleared chan struct{}
	clear   func() // closes cleared, once

	matched, fired int // guarded by Faults.mu
}

// Set adds a fault. It panics if f.Do is nil.
func (f *Faults) Set(fault Fault) *SetFault {
	if fault.Do == nil {
		panic("testserver: a Fault needs an effect")
	}
	set := &SetFault{Fault: fault, faults: f, cleared: make(chan struct{})}
	set.clear = sync.OnceFunc(func() { close(set.cleared) })
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = append(f.list, set)
	f.active.Store(true)
	return set
}

// Clear ends the fault and whatever waits in it. Later calls do nothing.
func (s *SetFault) Clear() {
	f := s.faults
	f.mu.Lock()
	f.list = slices.DeleteFunc(f.list, func(o *SetFault) bool { return o == s })
	f.active.Store(len(f.list) > 0)
	f.mu.Unlock()
	s.clear()
}

// Fired is how often the fault has struck.
func (s *SetFault) Fired() int {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	return s.fired
}

// Clear ends all faults.
func (f *Faults) Clear() {
	f.mu.Lock()
	all := f.list
	f.list = nil
	f.active.Store(false)
	f.mu.Unlock()
	for _, s := range all {
		s.clear()
	}
}

// faultMoment is one moment at which faults may strike.
type faultMoment struct {
	on    Point
	after bool
	sql   string
	conn  *serverConn
	reply any // the outgoing message, after the work
}

// fire carries out the faults that match. Its error, if any, is the answer.
func (f *Faults) fire(ctx context.Context, at faultMoment) error {
	if !f.active.Load() {
		return nil
	}
	for _, s := range f.match(at) {
		select {
		case <-s.cleared: // while an earlier one has delayed the call
			continue
		default:
		}
		if err := s.Do(ctx, &FaultTarget{faultMoment: at, fault: s}); err != nil {
			return err
		}
	}
	return nil
}

func (f *Faults) match(at faultMoment) []*SetFault {
	f.mu.Lock()
	defer f.mu.Unlock()
	var matching []*SetFault
	for _, s := range f.list {
		if s.On != at.on || s.After != at.after || !strings.Contains(at.sql, s.SQL) {
			continue
		}
		s.matched++
		if s.matched > s.Skip && (s.Times == 0 || s.fired < s.Times) {
			s.fired++
			matching = append(matching, s)
		}
	}
	return matching
}

// What can be made to happen now, rather than when a call comes by.

// KillConns resets every open connection and returns how many there were.
func (f *Faults) KillConns() int {
	return f.each(func(c *serverConn) { c.Cut() })
}

// FreezeConns makes every open connection a black hole: its calls get no
// answer and its end is not noticed. It returns how many there were.
func (f *Faults) FreezeConns() int {
	return f.each(func(c *serverConn) { c.Freeze() })
}

// ThawConns ends FreezeConns; what was held back arrives.
func (f *Faults) ThawConns() int {
	return f.each(func(c *serverConn) { c.Thaw() })
}

// GoAway tells every connection to take no new calls; each closes when its
// calls are done. It returns how many there were.
func (f *Faults) GoAway() int { return f.each((*serverConn).goAway) }

func (f *Faults) each(do func(*serverConn)) int {
	all := f.srv.openConns()
	for _, c := range all {
		do(c)
	}
	return len(all)
}

// EvictSessions ends every session with all it holds, as expiry does: its
// client is not told, and its next RPC gets a new and empty session. What runs
// in it runs to its end. It returns how many there were.
func (f *Faults) EvictSessions() int { return f.srv.sessions.evictAll() }

// KillSessions ends every session, and what runs in it, as GizmoSQL's KILL SESSION does: each
// later RPC of its client that needs a session, which a question for SqlInfo does not, is
// refused by KilledCode of the profile. It returns how many there were.
func (f *Faults) KillSessions() int { return f.srv.sessions.killAll() }

// EndStatements ends what runs or waits in every session, as a server's own time limit does: it is answered
// by UNKNOWN. What is ended between the statements as which it runs may leave their transaction open. It returns
// how many sessions there were.
func (f *Faults) EndStatements() int { return f.srv.sessions.interruptAll(errTimeLimit) }

// LimitSessions changes Profile.MaxSessions; zero is no bound. Sessions that
// exist live on.
func (f *Faults) LimitSessions(n int) { f.srv.sessions.setLimit(n) }

// ExpireTokens makes every bearer token invalid. Calls answer UNAUTHENTICATED, or
// what TokenCode of the profile says, until the client makes a handshake. It returns how many there were.
func (f *Faults) ExpireTokens() int { return f.srv.auth.expireAll() }

// ExpireToken makes one bearer token invalid and reports whether it was valid.
func (f *Faults) ExpireToken(token string) bool { return f.srv.auth.expire(token) }
