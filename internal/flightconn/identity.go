package flightconn

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"math"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const (
	authorizationKey = "authorization"
	cookieKey        = "cookie"

	// statelessCookie is the cookie in which servers of arrow-go's keep a session that they do not keep
	// themselves.
	statelessCookie = "arrow_flight_session"
)

// Credential is what a connection presents as who it is, for its whole life.
// How long that is may be for Expires to decide: the pool replaces the
// connection before (Conn.ExpiresAt).
type Credential struct {
	Header  string    // the value of the authorization header
	Expires time.Time // zero: never, or nobody says
}

// identity is who a connection is to the server: headers, credential and
// cookies. Each connection has its own, and every channel that acts for the
// connection (its transport, the control channel, locations that are trusted)
// presents it.
//
// INVARIANT: the credential changes only by what the server itself gives: the
// token of a handshake, or one in a reply. Many servers bind the session to it,
// so another one of the pool's would be another session.
//
// What servers bind a session to differs: the transport, the token of a
// handshake, a cookie or a header with a name of its own. A connection has one
// of each to itself, so that it is one session on all of them.
//
// headers is not changed after newIdentity. The cookie jar has a lock of its
// own.
type identity struct {
	anonymous bool // presents nothing at all
	headers   metadata.MD
	cookies   flight.CookieMiddleware

	hasCookies    atomic.Bool // the server has given one
	keepsPassword bool        // Config.SessionHeader names the session

	// replacementEnds is when a credential ends that a reply has brought after the open, in
	// seconds of the Unix epoch, as tokens name it; 0: none, or not known.
	replacementEnds atomic.Int64

	mu struct { // guards the fields below
		sync.Mutex
		credential  Credential
		renewed     bool              // it is of a reply
		sessions    map[string]string // cookies that name the session
		established bool              // the connection is open: what the server changes now is a loss
	}
}

// noIdentity is presented to servers to which no credentials go. All
// connections share it, so nothing may be kept in it.
var noIdentity = &identity{anonymous: true}

// newIdentity makes the identity of a connection that is to be opened. The
// value of Config.SessionHeader is random, so that nobody else can name the
// session.
func newIdentity(cfg *Config) *identity {
	id := &identity{headers: metadata.MD{}, cookies: flight.NewCookieMiddleware()}
	for key, values := range cfg.Headers {
		id.headers.Append(key, values...)
	}
	if cfg.SessionHeader != "" {
		id.headers.Set(cfg.SessionHeader, rand.Text())
		id.keepsPassword = true
	}
	return id
}

// withoutCredential is the error of an RPC without the credential that it was sent with:
// servers repeat tokens that they refuse. One of a few characters may stand in any text,
// and is left there. A header without a scheme is all token, and a user without a password
// may be one.
func withoutCredential(err error, authorization string) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	scheme, token, hasScheme := strings.Cut(authorization, " ")
	if !hasScheme {
		token = authorization
	}
	secrets := []string{token}
	if pair, err := base64.StdEncoding.DecodeString(token); err == nil && strings.EqualFold(scheme, "Basic") {
		user, password, _ := strings.Cut(string(pair), ":")
		secrets = append(secrets, cmp.Or(password, user))
	}
	text := s.Message()
	for _, secret := range secrets {
		if len(secret) >= 6 {
			text = strings.ReplaceAll(text, secret, "[secret]")
		}
	}
	if text == s.Message() {
		return err
	}
	told := s.Proto()
	told.Message = text
	return status.ErrorProto(told)
}

func (id *identity) setCredential(c Credential) {
	id.mu.Lock()
	id.mu.credential, id.mu.renewed = c, false
	id.mu.Unlock()
}

// markEstablished says that the session is there, so that another one is a loss.
func (id *identity) markEstablished() {
	id.mu.Lock()
	id.mu.established = true
	id.mu.Unlock()
}

// replaceToken makes a token that the server gave the credential, for a
// connection that has one. A connection without one presents none, whatever the
// server offers, and what cannot be sent is no token. The expiry is that which the token
// names, and stays where it names none.
//
// Nor does one take the place of a password where a header of ours names the session, so that none is bound to the
// token: ClickHouse's ends a minute after the beginning of its last call, and nothing of a query that takes longer could
// be fetched.
func (id *identity) replaceToken(header string) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.mu.credential.Header == "" || id.mu.credential.Header == header || !isHeaderValue(header) {
		return
	}
	if scheme, _, _ := strings.Cut(id.mu.credential.Header, " "); id.keepsPassword && strings.EqualFold(scheme, "Basic") {
		return
	}
	id.mu.credential.Header, id.mu.renewed = header, true
	id.replacementEnds.Store(0)
	if at := JWTExpiry(header); !at.IsZero() {
		if id.mu.credential.Expires = at; id.mu.established {
			id.replacementEnds.Store(at.Unix())
		}
	}
}

// hasOwnNameOfSession reports whether the server has given the connection, in replies, what names a
// session: a cookie of that name, or a token.
func (id *identity) hasOwnNameOfSession() bool {
	id.mu.Lock()
	defer id.mu.Unlock()
	return len(id.mu.sessions) > 0 || id.mu.renewed
}

// sessionReplaced compares the cookies that name the session with those of before.
// Others, such as a load balancer's, may change as they like.
//
// Before the connection is established nothing was done in a session, so that another one is no loss.
//
// A cookie that is deleted is a session that has ended. One that comes for the
// first time is no other session, and neither is another value of one that holds the session (statelessCookie).
func (id *identity) sessionReplaced(lines []string) (replaced bool) {
	id.mu.Lock()
	defer id.mu.Unlock()
	for _, c := range (&http.Response{Header: http.Header{"Set-Cookie": lines}}).Cookies() {
		if !namesSession(c.Name) {
			continue
		}
		value := c.Value
		if c.Name == statelessCookie {
			value = c.Name
		}
		if c.MaxAge < 0 || c.MaxAge == 0 && !c.Expires.IsZero() && c.Expires.Before(time.Now()) {
			value = "" // deleted
		}
		before, known := id.mu.sessions[c.Name]
		replaced = replaced || known && before != "" && before != value && id.mu.established
		if id.mu.sessions == nil {
			id.mu.sessions = map[string]string{}
		}
		id.mu.sessions[c.Name] = value
	}
	return replaced
}

// JWTExpiry is the moment that a bearer token names as its end, if it is a JSON
// Web Token, and zero if it is none or has ended by our clock already. The
// token is not verified: who presents it only needs to know when to get
// another. Zero means that nothing is known: a wrong clock on this machine must
// not make every connection expire at once, and a number of seconds beyond any
// calendar is no time.
func JWTExpiry(header string) time.Time {
	parts := strings.Split(strings.TrimPrefix(header, "Bearer "), ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}
	}
	var claims struct {
		Exp float64 `json:"exp"` // seconds, with a fraction if the issuer likes
	}
	if json.Unmarshal(body, &claims) != nil || claims.Exp > math.MaxInt32*100 {
		return time.Time{}
	}
	at := time.Unix(int64(claims.Exp), 0)
	if !at.After(time.Now()) {
		return time.Time{}
	}
	return at
}
