package doctor

import (
	"context"
	"fmt"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
)

// headers by which servers are known to bind a session, where none was named.
var sessionHeaders = []string{"x-clickhouse-session-id", "x-session-id"}

// sessions finds out whether a temporary table is there in the next call, and
// whose calls see it.
func (e *exam) sessions(ctx context.Context) {
	const subject = "sessions"
	if e.ReadOnly {
		e.found(subject, unknown, "it takes a temporary table to find out")
		return
	}
	l, table, _ := e.kept(ctx, func(c *flightpool.Config, t *tap) { t.noCookies, c.SessionHeader = true, "" })
	if l != nil {
		defer l.close(ctx)
		e.key(ctx, l, table)
		return
	}
	l, table, err := e.kept(ctx, func(c *flightpool.Config, _ *tap) { c.SessionHeader = "" })
	if l != nil {
		defer l.close(ctx)
		if l.tap.cookieName() == "" { // the first was refused for another reason
			e.key(ctx, l, table)
			return
		}
		e.found(subject, "by cookie", "%s; each connection of a pool has its own", l.tap.cookieName())
		return
	}
	candidates := sessionHeaders
	if e.Config.SessionHeader != "" { // the server may let nobody in without
		candidates = []string{e.Config.SessionHeader}
	} else if err != nil && !refused(err) {
		e.found(subject, unknown, "no temporary table can be made: %s", firstLine(err))
		return
	}
	for _, e.header = range candidates {
		var unopened error
		if l, _, unopened = e.kept(ctx, nil); unopened != nil && !refused(unopened) {
			e.header = ""
			e.unopened(subject, unopened)
			return
		} else if l != nil {
			defer l.close(ctx)
			e.found(subject, "by header", "%s; each connection of a pool has its own", e.header)
			e.set("SessionHeader", fmt.Sprintf("%q", e.header), "without it, each call has a session of its own")
			return
		}
	}
	e.header = ""
	if err != nil {
		e.found(subject, unknown, "no temporary table can be made: %s", firstLine(err))
		return
	}
	e.found(subject, no, "each call has a session of its own: no transactions, temporary tables or settings stay")
}

// kept is a connection on which a temporary table is still there in the next
// call, with that table, or nil.
func (e *exam) kept(ctx context.Context, change func(*flightpool.Config, *tap)) (*link, string, error) {
	l, err := e.connect(ctx, change)
	if err != nil {
		return nil, "", err
	}
	table, err := e.temporary(ctx, l)
	if err == nil {
		if rows, gone := l.count(ctx, table, backend.Call{}); gone == nil && rows == 0 {
			return l, table, nil
		}
	}
	l.close(ctx)
	return nil, "", err
}

// key finds out who else sees the temporary table of a connection whose session
// needs no cookie.
func (e *exam) key(ctx context.Context, l *link, table string) {
	const subject = "sessions"
	other, sees, err := e.sees(ctx, table, "")
	switch mine := l.tap.authorization(); {
	case err != nil:
		e.found(subject, unknown, "no second connection: %v", err)
	case sees && mine != "" && mine == other:
		e.found(subject, "by token", "or one for all: connections with one token share it")
		e.set("MaxSize", "1", "connections with one token share a session; with BasicAuth each may have a token of its own")
	case sees:
		e.found(subject, "one for all", "other connections see its temporary tables")
		e.set("MaxSize", "1", "where callers keep temporary tables or settings: all connections share them")
		_ = e.change(ctx, l, "DROP TABLE "+table, backend.Call{}) // it would stay
	default:
		if _, sees, err = e.sees(ctx, table, mine); err == nil && sees && mine != "" {
			e.found(subject, "by token", "a handshake of its own gives each connection one")
			return
		}
		e.found(subject, "by connection", "")
	}
}

// sees reports whether another connection, with that authorization if it is
// not empty, sees a temporary table; and what it has presented.
func (e *exam) sees(ctx context.Context, table, authorization string) (presented string, sees bool, err error) {
	l, err := e.connect(ctx, func(_ *flightpool.Config, t *tap) { t.noCookies, t.present = true, authorization })
	if err != nil {
		return "", false, err
	}
	defer l.close(ctx)
	_, err = l.count(ctx, table, backend.Call{})
	return l.tap.authorization(), err == nil, nil
}

// idling leaves a session alone.
func (e *exam) idling(ctx context.Context) {
	const subject = "idle sessions"
	if e.Idle <= 0 || e.ReadOnly {
		return
	}
	l, table, err := e.kept(ctx, nil)
	if err != nil || l == nil {
		e.found(subject, unknown, "there is no session that could be left alone")
		return
	}
	defer l.close(ctx)
	if wait(ctx, e.Idle) != nil {
		return
	}
	if rows, err := l.count(ctx, table, backend.Call{}); err == nil && rows == 0 {
		e.found(subject, "stay", "after %v", e.Idle)
		return
	}
	if e.silence != nil && (backend.FaultIn(e.silence) == backend.FaultLimit || !e.reachable(ctx)) {
		return // its credentials may have ended with it
	}
	e.found(subject, "end", "after %v or sooner", e.Idle)
	e.set("IdleTTL", fmt.Sprintf("%d * time.Millisecond", e.Idle.Milliseconds()/2), "the server ends idle sessions sooner than the pool would")
}
