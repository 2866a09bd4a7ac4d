package testserver

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// call is one RPC.
type call struct {
	conn       *serverConn
	rpc        Point
	sessionKey string   // the session that it belongs to
	sess       *session // nil if the RPC needs none
	ticket     string   // that it redeems, or ""
}

type callKey struct{}

// callOf returns the call that service has put into ctx.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// sessionNeed tells which session an RPC needs.
type sessionNeed uint8

const (
	noSession   sessionNeed = iota
	openSession             // made if it is missing
)

// beginRPC is what comes first in each RPC: who asks, whether the server has
// this at all, whose session it is, and the faults. sql is empty if unknown.
func (f *service) beginRPC(ctx context.Context, rpc Point, what string, sql string, n sessionNeed) (context.Context, func(), error) {
	c := &call{conn: f.conn, rpc: rpc}
	end := func() {}
	bearer, err := f.srv.auth.checkBearer(ctx)
	if err == nil {
		err = f.checkRefused(string(rpc), what)
	}
	if err != nil {
		f.srv.ledger.update(func(now *Snapshot) { now.Refused++ })
		return ctx, end, err
	}
	if c.sessionKey, err = f.sessionKey(ctx, bearer); err != nil {
		return ctx, end, err
	}
	if f.srv.profile.LockSessions {
		if !f.srv.sessions.lock(c.sessionKey) {
			return ctx, end, status.Errorf(codes.InvalidArgument, "Session %s is locked by a concurrent client", c.sessionKey)
		}
		end = func() { f.srv.sessions.unlock(c.sessionKey) }
	}
	if what == "CommandGetSqlInfo" && f.srv.sessions.isKilled(c.sessionKey) {
		n = noSession
	}
	if n == openSession {
		if c.sess, err = f.srv.sessions.open(ctx, c.sessionKey, f.conn); err != nil {
			return ctx, end, err
		}
		if c.hasOwnSession() {
			unlock := end
			end = func() { f.srv.sessions.close(c.sess); unlock() }
		}
	}
	point := rpc
	if what != "" && rpc == "DoAction" {
		point = Point(what)
		c.rpc = point
	}
	err = f.srv.faults.fire(ctx, faultMoment{on: point, sql: sql, conn: f.conn})
	return context.WithValue(ctx, callKey{}, c), end, err
}

// checkRefused answers for what the profile does not have.
func (f *service) checkRefused(names ...string) error {
	for _, name := range names {
		if code, refused := f.srv.profile.Refuse[name]; refused {
			return status.Error(code, fmt.Sprintf("%s: the defined request is invalid or not implemented", name))
		}
	}
	return nil
}

// perCallPrefix begins the keys of sessions that last for one RPC.
const perCallPrefix = "call "

// hasOwnSession reports whether the RPC's session ends with it. A ticket that is made there
// cannot wait for its statement to run in that session.
func (c *call) hasOwnSession() bool { return strings.HasPrefix(c.sessionKey, perCallPrefix) }

// sessionKey tells which session a call belongs to.
func (f *service) sessionKey(ctx context.Context, bearer string) (string, error) {
	name := f.srv.profile.KeyName
	switch f.srv.profile.SessionKey {
	case ByPeerIP:
		host, _, err := net.SplitHostPort(f.conn.peer)
		if err != nil {
			host = f.conn.peer
		}
		return "ip " + host, nil
	case ByBearer:
		return "bearer " + bearer, nil
	case ByHeader:
		if v := header(ctx, name); v != "" {
			return "header " + v, nil
		}
		return perCallPrefix + rand.Text(), nil
	case ByCookie:
		return f.cookieKey(ctx, name)
	case ByCall:
		return perCallPrefix + rand.Text(), nil
	case ByConnection:
	}
	return connKey(f.conn), nil
}

// cookieKey reads the session's cookie, and sets a new one if it is missing.
func (f *service) cookieKey(ctx context.Context, name string) (string, error) {
	for _, line := range metadata.ValueFromIncomingContext(ctx, "cookie") {
		cookies, err := http.ParseCookie(line)
		if err != nil {
			return "", status.Errorf(codes.InvalidArgument, "cookie: %v", err)
		}
		for _, c := range cookies {
			key := "cookie " + c.Value
			if c.Name == name && (!f.srv.profile.FreshCookie || !f.srv.sessions.wasEvicted(key)) {
				return key, nil
			}
		}
	}
	value := rand.Text()
	err := grpc.SetHeader(ctx, metadata.Pairs("set-cookie", (&http.Cookie{Name: name, Value: value}).String()))
	return "cookie " + value, err
}
