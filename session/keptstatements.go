package session

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/effect"
)

// Statements are prepared statements of the connections of a pool, kept for single calls
// with parameters that only read. No handle of a session sees them.
//
// A statement in use is out of here, and belongs to its call as any does (finish). It is
// kept only when the call has ended well, so that whatever fails closes it.
//
// INVARIANT: of the statements kept for a connection no two have the same handle. A server that
// counts its handles gives one again once it has replaced the session, in which the
// kept ones mean something else.
//
// INVARIANT: none was prepared while a session was out that has changed a setting, which may be one
// of the whole server: servers plan a statement by them, and the plan stays when they are put back.
//
// A nil *Statements keeps none, and none are kept for a connection that cannot be told from
// others (canBeKept).
type Statements struct {
	size   int
	byConn sync.Map // backend.Conn to *connStatements
	resets sync.Map // of backend.Conn, whose sessions have been reset by statements of the owner's
}

type connStatements struct {
	mu       sync.Mutex
	byText   map[string]*keptStatement
	byHandle map[string]*keptStatement
	uses     uint64
}

type keptStatement struct {
	sql     string
	stmt    backend.Prepared
	handle  string
	params  *arrow.Schema // that it was executed with
	rows    *arrow.Schema // that it has answered with
	lastUse uint64        // 0: it was not kept yet
	holds   uint64        // of settings, as changedSettings counts them, when it was prepared
	settled bool          // no setting was held then
	objects uint64        // changes of objects before it was prepared
}

// NewStatements keeps up to size statements for each connection.
func NewStatements(size int) *Statements { return &Statements{size: size} }

// Forget is for a connection that is being closed, with which its statements end.
func (k *Statements) Forget(c backend.Conn) {
	if k != nil && canBeKept(c) {
		k.byConn.Delete(c)
		k.resets.Delete(c)
	}
}

// firstReset reports whether a connection's session is about to be reset by statements of the owner's
// for the first time, behind which texts may mean something else than when it was opened.
func (k *Statements) firstReset(c backend.Conn, mode resetMode) bool {
	if k == nil || mode != resetSQL || !canBeKept(c) {
		return false
	}
	_, again := k.resets.LoadOrStore(c, struct{}{})
	return !again
}

func (k *Statements) of(c backend.Conn) *connStatements {
	found, ok := k.byConn.Load(c)
	if !ok {
		found, _ = k.byConn.LoadOrStore(c, &connStatements{byText: map[string]*keptStatement{}, byHandle: map[string]*keptStatement{}})
	}
	return found.(*connStatements)
}

// take takes the statement of a text out, or is nil.
func (k *Statements) take(c backend.Conn, sql string) *keptStatement {
	of := k.of(c)
	of.mu.Lock()
	defer of.mu.Unlock()
	return of.remove(of.byText[sql])
}

// remove takes st out, if it is not nil. The lock is held.
func (of *connStatements) remove(st *keptStatement) *keptStatement {
	if st != nil {
		delete(of.byText, st.sql)
		delete(of.byHandle, st.handle)
	}
	return st
}

// errHandleAgain says that a server has given the handle of a statement that was not closed.
var errHandleAgain = errors.New("the server has given the handle of an open prepared statement again: it has replaced the session")

// put keeps st, and is what must be closed instead: the one that was not used for longest.
func (k *Statements) put(c backend.Conn, st *keptStatement) (surplus *keptStatement, err error) {
	of := k.of(c)
	of.mu.Lock()
	defer of.mu.Unlock()
	if of.byHandle[st.handle] != nil {
		return st, errHandleAgain
	}
	if len(of.byText) >= k.size {
		for _, other := range of.byText {
			if surplus == nil || other.lastUse < surplus.lastUse {
				surplus = other
			}
		}
		of.remove(surplus)
	}
	of.uses++
	st.lastUse = of.uses
	of.byText[st.sql], of.byHandle[st.handle] = st, st
	return surplus, nil
}

// dropKept has all statements that are kept for the connection closed after the call.
func (s *SessionHandle) dropKept() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.dropKept = true
}

// mayLeaveHandle reports whether the server may have prepared a statement, whose handle nobody
// knows, although the call has failed in e. Where it has replaced the session, the handle can be
// that of a kept one.
func mayLeaveHandle(e *backend.Error) bool {
	return e.Stage == backend.StagePrepare && meaningOf(effect.Statement, e) == effect.NotKnown
}

// closeKept closes all statements that are kept for the connection. One that the server has forgotten is closed.
func (s *SessionHandle) closeKept(ctx context.Context) error {
	if s.policy.Statements == nil || !canBeKept(s.conn) {
		return nil
	}
	found, ok := s.policy.Statements.byConn.LoadAndDelete(s.conn)
	if !ok {
		return nil
	}
	var failed error
	for _, st := range found.(*connStatements).byText { // it is out of reach of others
		if failed != nil {
			break
		}
		if err := st.stmt.Close(ctx); err != nil && backend.FaultIn(err) != backend.FaultStatement {
			failed = err
		}
	}
	return failed
}

// mayKeepStatement reports whether the statement of a call may be one that was kept, and
// be kept for later ones. A call that must not be repeated prepares its own: the server may
// have forgotten one that was kept. So does one that binds no row, for which the parameters of
// an earlier call could stand, and one of times: what the server has told of the parameters of a kept
// statement may be true no longer, and a time that is sent as a date is another.
func (s *SessionHandle) mayKeepStatement(c *call, retry RetryPolicy, params parameters) bool {
	return s.policy.Statements != nil && s.stateless && c.script.PlainRead() && retry != RetryNever && !c.sendsHeaders &&
		!params.values.FollowTypes() && (params.batch == nil || params.batch.NumRows() > 0 && params.batch.NumCols() > 0) && canBeKept(s.conn)
}

// sendsHeaders reports whether ctx has outgoing metadata, which may tell the server what a text
// means, as Headers may. What is there to follow a call by does not.
func sendsHeaders(ctx context.Context) bool {
	md, _ := metadata.FromOutgoingContext(ctx)
	for name := range md {
		if !slices.Contains(tracingHeaders, name) && !strings.HasPrefix(name, "x-b3-") && !strings.HasPrefix(name, "x-datadog-") {
			return true
		}
	}
	return false
}

var tracingHeaders = []string{
	"traceparent", "tracestate", "baggage", "b3", "uber-trace-id", "x-cloud-trace-context", "x-amzn-trace-id", "grpc-trace-bin", "sentry-trace", "x-request-id",
}

// queryKept runs a read by a statement that was kept, or by one that is kept after it.
// Where the server refuses what was kept, which it may have forgotten or cannot
// execute any more, the call makes another. Nothing of it was delivered.
func (s *SessionHandle) queryKept(ctx context.Context, c *call, sql string, params parameters) (backend.Stream, error) {
	forgotten := false // by the server, as by one that has replaced the session
	if st := s.policy.Statements.take(s.conn, sql); st != nil {
		c.setOwnStatement(st.stmt)
		stream, err := c.queryBy(ctx, st, params)
		if !mayPrepareAgain(err) {
			return stream, err
		}
		c.setOwnStatement(nil)
		c.operation.ForgetName()
		if failed := st.stmt.Close(ctx); failed != nil && backend.FaultIn(failed) != backend.FaultStatement {
			return nil, failed
		}
		forgotten = !errors.Is(err, errOtherObjects)
	}
	st := &keptStatement{sql: sql, objects: s.objectsChanged()}
	st.holds, st.settled = s.policy.allChangedSettings().asTheyWere()
	stmt, err := s.conn.Prepare(ctx, sql, c.backendCall)
	if err != nil {
		if forgotten {
			s.dropKept()
		}
		return nil, err
	}
	c.setOwnStatement(stmt)
	st.stmt = stmt
	return c.queryBy(ctx, st, params)
}

// errOtherParams says that a statement was executed with parameters of other types before,
// by which a server may have planned it.
var errOtherParams = errors.New("parameters of other types than before")

// errOtherObjects says that something was made, altered or dropped since a statement was prepared.
var errOtherObjects = errors.New("objects that have changed since")

func mayPrepareAgain(err error) bool {
	var e *backend.Error
	return errors.Is(err, errOtherParams) || errors.Is(err, errOtherObjects) || errors.As(err, &e) && e.Fault == backend.FaultStatement && !e.Running
}

// queryBy executes st, which is kept after the call if all goes well.
func (c *call) queryBy(ctx context.Context, st *keptStatement, params parameters) (stream backend.Stream, err error) {
	if st.objects != c.s.objectsChanged() && st.lastUse > 0 {
		return nil, errOtherObjects
	}
	err = params.bindTo(st.stmt, func(rows arrow.RecordBatch) error {
		if st.params != nil && !st.params.Equal(rows.Schema()) {
			return errOtherParams
		}
		st.params = rows.Schema()
		stream, err = st.stmt.Query(ctx, rows, c.backendCall)
		return err
	})
	if err != nil {
		return nil, err
	}
	if st.rows == nil {
		st.rows = stream.Schema()
	}
	if st.rows.Equal(stream.Schema()) {
		c.setKept(st)
	}
	return stream, nil
}

// plansAsBefore reports whether no session has changed a setting beside the preparing of st.
func (p *Policy) plansAsBefore(st *keptStatement) bool {
	if st.lastUse > 0 { // it is kept already
		return true
	}
	holds, _ := p.allChangedSettings().asTheyWere()
	return st.settled && holds == st.holds
}

// setKept has the call's own statement kept at its end.
func (c *call) setKept(st *keptStatement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.kept = st
}

// keepStatement keeps the call's own statement, if that is to be kept and the call has
// ended well. What must be closed instead is the call's own then.
func (c *call) keepStatement(o outcome) {
	c.mu.Lock()
	st := c.mu.kept
	c.mu.kept = nil
	c.mu.Unlock()
	if st == nil || o.err != nil || o.interruptedBy != nil || c.s.conn.Lost() != nil || !c.s.policy.plansAsBefore(st) {
		return
	}
	named, ok := st.stmt.(backend.HandleNamer)
	if !ok {
		return
	}
	if st.handle = named.Handle(); st.handle == "" {
		return
	}
	surplus, err := c.s.policy.Statements.put(c.s.conn, st)
	if err != nil {
		c.s.markDiscard(err)
	}
	if surplus == nil {
		c.setOwnStatement(nil)
		return
	}
	c.setOwnStatement(surplus.stmt)
}
