package flightpool

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/flightpool/flightpool/internal/flightconn"
)

// Auth holds the credentials that the pool presents. The zero Auth presents none. It
// prints without its secrets.
type Auth struct {
	kind     string
	user     string
	password secret
	header   secret // the value of the authorization header
	source   TokenSource
}

// TokenSource gives a bearer token and when it expires; the zero time means
// that it does not say. It is called when a token is needed and there is none,
// when the last one is about to expire, or when the server refused it, never
// twice at a time: all who need the token wait for one call and share what
// comes of it.
//
// After an error, or a panic, callers wait as Config.OpenRetry says; one that
// reservoir.Permanent marks fails them at once.
//
// ctx is the pool's, not a caller's: it ends after 30 seconds and when the
// pool is closed, and Close waits up to CloseTimeout for the call to return.
type TokenSource func(ctx context.Context) (token string, expires time.Time, err error)

// BasicAuth presents user and password in a handshake of every connection, so
// that each connection has a token, and on many servers a session, of its own.
func BasicAuth(user, password string) Auth {
	return Auth{kind: "basic", user: user, password: newSecret(password)}
}

// BasicHeader presents user and password with every call instead of a
// handshake, for servers without one.
func BasicHeader(user, password string) Auth {
	return Auth{kind: "basic header", user: user, header: newSecret("Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password)))}
}

// BearerAuth presents a token that does not change.
//
// Servers that tie the session to the token (GizmoSQL, Doris and StarRocks) give
// all connections of the pool, and of other processes, one session then, and
// nothing in their answers tells. A cancel that such a server carries out for a
// whole session (GizmoSQL's) stops the statements of other callers, a setting or
// transaction of one is seen by all, and connections that come after one that
// broke find what was left. Use BasicAuth there, which makes a session for each
// connection, or MaxSize 1.
func BearerAuth(token string) Auth { return Auth{kind: "bearer", header: newSecret("Bearer " + token)} }

// HeaderAuth presents value, as it is, as the authorization header.
func HeaderAuth(value string) Auth { return Auth{kind: "header", header: newSecret(value)} }

// TokenAuth presents the tokens of a source, and asks it again when the server
// has refused one. Connections share a token as long as it lasts: see BearerAuth
// for servers that tie the session to it.
func TokenAuth(source TokenSource) Auth { return Auth{kind: "token", source: source} }

func (a Auth) validate() error {
	header := a.header.reveal()
	switch {
	case a.kind == "basic" && a.user == "":
		return errors.New("BasicAuth needs a user")
	case a.kind == "basic" && strings.Contains(a.user, ":"):
		return errors.New("the user of BasicAuth must not contain a colon")
	case a.kind == "token" && a.source == nil:
		return errors.New("TokenAuth needs a source")
	case a.kind == "bearer":
		if err := checkToken(strings.TrimPrefix(header, "Bearer ")); err != nil {
			return fmt.Errorf("BearerAuth: the token %w", err)
		}
	case a.kind == "header" && header == "":
		return errors.New("HeaderAuth needs a value")
	case strings.ContainsFunc(header, notPrintable):
		return errors.New("the authorization header contains characters that are not printable ASCII")
	}
	return nil
}

// credentialSource is what the connections of a pool present, each the one that it
// was opened with.
type credentialSource struct {
	// get gives the credential of a new connection; nil when there is none.
	// rejected is the header that the server refused last.
	get func(ctx context.Context, rejected string) (flightconn.Credential, error)
	// stop ends what get has under way, and waits for that up to a limit.
	stop func(limit time.Duration) error
	// basic is presented in a handshake of each connection, in place of get; nil: there is none.
	basic *flightconn.UserPass
}

// credential makes the credentialSource of a pool that lives as long as life.
func (a Auth) credential(life context.Context) credentialSource {
	switch {
	case a.source != nil:
		t := newTokenCache(life, a.source)
		return credentialSource{get: t.get, stop: t.close}
	case a.kind == "basic":
		return credentialSource{stop: noStop, basic: &flightconn.UserPass{User: a.user, Password: a.password.reveal()}}
	case a.header.reveal() != "":
		return credentialSource{get: func(context.Context, string) (flightconn.Credential, error) {
			return flightconn.Credential{Header: a.header.reveal()}, nil
		}, stop: noStop}
	default:
		return credentialSource{stop: noStop}
	}
}

func noStop(time.Duration) error { return nil }

// checkToken says what is wrong with a bearer token: what gRPC would not send, with
// words about itself, and what ends a token in a header. It does not show the token.
func checkToken(token string) error {
	switch {
	case token == "":
		return errors.New("is empty")
	case strings.Contains(token, " ") || strings.ContainsFunc(token, notPrintable):
		return errors.New("contains a space, a line break or what is not printable ASCII")
	}
	return nil
}

func notPrintable(r rune) bool { return r < ' ' || r > '~' }
