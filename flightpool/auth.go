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
type Auth struct{ method authMethod }

// An authMethod is one kind of credentials. Nothing else knows which kinds there are.
type authMethod interface {
	// validate says what is wrong with them, without a secret.
	validate() error
	// credential is what a pool presents that lives as long as life.
	credential(life context.Context) credentialSource
	// String names the kind and, where it is no secret, the user.
	String() string
}

// TokenSource gives a bearer token and when it expires; the zero time means
// that it does not say: the end that a JSON Web Token names counts then. It is
// called when a new connection needs a token and there is none, half of the life of
// the last one is over, or the server refused it, never twice at a time: all who need the
// token wait for one call and share what comes of it. While the last one still can be
// used, to shortly before its end, they wait a second, and go on with that where the call
// takes longer or fails.
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
	return Auth{basicAuth{user, newSecret(password)}}
}

// BasicHeader presents user and password with every call instead of a
// handshake, for servers without one. A token that the server gives for them takes
// their place, unless Config.SessionHeader is set: ClickHouse's end a minute after
// the beginning of their last call, and no session is bound to them.
func BasicHeader(user, password string) Auth {
	value := "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	return Auth{headerAuth{kind: "basic header", user: user, value: newSecret(value), check: func(string) error {
		return checkUser("BasicHeader", user)
	}}}
}

// BearerAuth presents a token that does not change.
//
// Servers that tie the session to the token (GizmoSQL, Doris and StarRocks) give
// all connections of the pool, and of other processes, one session then, and
// nothing in their answers tells. A cancel that such a server carries out for a
// whole session (GizmoSQL's) stops the statements of other callers, a setting or
// transaction of one is seen by all, a connection that is closed may end the session
// of all, and connections that come after one that broke, or was given up, find what was left: also the
// transaction that a change leaves which is cut while the server runs it as several statements, in which later changes are
// reported as stored and are not. Use BasicAuth there, which makes a session for each
// connection. MaxSize 1 keeps callers apart, but not from what a connection before has left.
func BearerAuth(token string) Auth {
	return Auth{headerAuth{kind: "bearer", value: newSecret("Bearer " + token), check: func(value string) error {
		if err := checkToken(strings.TrimPrefix(value, "Bearer ")); err != nil {
			return fmt.Errorf("BearerAuth: the token %w", err)
		}
		return nil
	}}}
}

// HeaderAuth presents value, as it is, as the authorization header.
func HeaderAuth(value string) Auth {
	return Auth{headerAuth{kind: "header", value: newSecret(value), check: func(value string) error {
		if value == "" {
			return errors.New("HeaderAuth needs a value")
		}
		return nil
	}}}
}

// TokenAuth presents the tokens of a source, and asks it again when the server
// has refused one. Connections share a token as long as it lasts: see BearerAuth
// for servers that tie the session to it.
func TokenAuth(source TokenSource) Auth { return Auth{tokenAuth{source}} }

func (a Auth) validate() error {
	if a.method == nil {
		return nil
	}
	return a.method.validate()
}

// credential makes the credentialSource of a pool that lives as long as life.
func (a Auth) credential(life context.Context) credentialSource {
	if a.method == nil {
		return credentialSource{stop: noStop}
	}
	return a.method.credential(life)
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

func noStop(time.Duration) error { return nil }

// basicAuth is a user and password for handshakes.
type basicAuth struct {
	user     string
	password secret
}

func (a basicAuth) validate() error {
	if a.user == "" {
		return errors.New("BasicAuth needs a user")
	}
	return checkUser("BasicAuth", a.user)
}

func (a basicAuth) credential(context.Context) credentialSource {
	return credentialSource{stop: noStop, basic: &flightconn.UserPass{User: a.user, Password: a.password.reveal()}}
}

func (a basicAuth) String() string {
	if a.password.reveal() == "" { // the user may be a token
		return "basic"
	}
	return "basic " + a.user
}

// headerAuth is one value of the authorization header.
type headerAuth struct {
	kind, user string // user is empty if there is none
	value      secret
	check      func(value string) error
}

func (a headerAuth) validate() error {
	if err := a.check(a.value.reveal()); err != nil {
		return err
	}
	if strings.ContainsFunc(a.value.reveal(), notPrintable) {
		return errors.New("the authorization header contains characters that are not printable ASCII")
	}
	return nil
}

func (a headerAuth) credential(context.Context) credentialSource {
	return credentialSource{get: func(context.Context, string) (flightconn.Credential, error) {
		return flightconn.Credential{Header: a.value.reveal()}, nil
	}, stop: noStop}
}

func (a headerAuth) String() string { return strings.TrimSpace(a.kind + " " + a.user) }

// tokenAuth is tokens of a source.
type tokenAuth struct{ source TokenSource }

func (a tokenAuth) validate() error {
	if a.source == nil {
		return errors.New("TokenAuth needs a source")
	}
	return nil
}

func (a tokenAuth) credential(life context.Context) credentialSource {
	t := newTokenCache(life, a.source)
	return credentialSource{get: t.get, stop: t.close}
}

func (a tokenAuth) String() string { return "token" }

// checkUser refuses a user whom a server would take apart at another place.
func checkUser(method, user string) error {
	if strings.Contains(user, ":") {
		return fmt.Errorf("the user of %s must not contain a colon", method)
	}
	return nil
}

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
