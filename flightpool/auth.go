package flightpool

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// Auth is who the pool is to the server. The zero Auth is nobody. It prints
// without its secrets.
type Auth struct {
	kind     string
	user     string
	password string
	header   string
	source   TokenSource
}

// TokenSource gives a bearer token and when it expires; the zero time means
// that it does not say. It is called when a token is needed and there is none,
// when the last one is about to expire, or when the server refused it, never
// twice at a time: all who need the token wait for one call and share what
// comes of it.
//
// ctx is the pool's, not a caller's: it ends after 30 seconds and when the
// pool is closed, and Close waits for the call to return.
type TokenSource func(ctx context.Context) (token string, expires time.Time, err error)

// BasicAuth presents user and password in a handshake of every connection, so
// that each connection has a token, and on many servers a session, of its own.
func BasicAuth(user, password string) Auth {
	return Auth{kind: "basic", user: user, password: password}
}

// BasicHeader presents user and password with every call instead of a
// handshake, for servers without one.
func BasicHeader(user, password string) Auth {
	return Auth{kind: "basic header", user: user, header: "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))}
}

// BearerAuth presents a token that does not change. Servers that tie the
// session to the token give all connections one session then.
func BearerAuth(token string) Auth { return Auth{kind: "bearer", header: "Bearer " + token} }

// HeaderAuth presents value, as it is, as the authorization header.
func HeaderAuth(value string) Auth { return Auth{kind: "header", header: value} }

// TokenAuth presents the tokens of a source, and asks it again when the server
// has refused one.
func TokenAuth(source TokenSource) Auth { return Auth{kind: "token", source: source} }

// String names the method and the user, never a secret.
func (a Auth) String() string {
	switch {
	case a.kind == "":
		return "none"
	case a.user != "":
		return a.kind + " " + a.user
	default:
		return a.kind
	}
}

// Format keeps the secrets out of every verb.
func (a Auth) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(a.String())) }

// LogValue keeps the secrets out of logs.
func (a Auth) LogValue() slog.Value { return slog.StringValue(a.String()) }

func (a Auth) validate() error {
	switch {
	case a.kind == "basic" && a.user == "":
		return errors.New("Auth: BasicAuth needs a user")
	case a.kind == "basic" && strings.Contains(a.user, ":"):
		return errors.New("Auth: the user of BasicAuth must not contain a colon")
	case a.kind == "token" && a.source == nil:
		return errors.New("Auth: TokenAuth needs a source")
	case a.kind == "bearer" && a.header == "Bearer ":
		return errors.New("Auth: BearerAuth needs a token")
	case a.kind == "header" && a.header == "":
		return errors.New("Auth: HeaderAuth needs a value")
	case strings.ContainsAny(a.header, "\r\n"):
		return errors.New("Auth: the authorization header contains a line break")
	}
	return nil
}
