package oauth

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

const secret = "s3cr&t/+"

// issuer is a token endpoint. It hands out t1, t2, ...
type issuer struct {
	*httptest.Server
	mu       sync.Mutex
	requests []url.Values
	basic    []string // user and password of each request, or ""
	answer   func(w http.ResponseWriter, n int, sent url.Values)
}

func newIssuer(t *testing.T) *issuer {
	is := &issuer{answer: func(w http.ResponseWriter, n int, _ url.Values) {
		reply(w, 200, map[string]any{"access_token": fmt.Sprint("t", n), "token_type": "Bearer", "expires_in": 3600})
	}}
	is.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		user, password, ok := r.BasicAuth()
		is.mu.Lock()
		is.requests = append(is.requests, r.PostForm)
		if !ok {
			is.basic = append(is.basic, "")
		} else {
			is.basic = append(is.basic, user+" "+password)
		}
		n, answer := len(is.requests), is.answer
		is.mu.Unlock()
		answer(w, n, r.PostForm)
	}))
	t.Cleanup(is.Close)
	return is
}

func reply(w http.ResponseWriter, status int, body map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (is *issuer) count() int {
	is.mu.Lock()
	defer is.mu.Unlock()
	return len(is.requests)
}

func (is *issuer) client() Client {
	return Client{TokenURL: is.URL + "/token", ID: "reports", Secret: secret, HTTP: is.Client()}
}

func server(t *testing.T) *testserver.Server {
	srv, err := testserver.Start(testserver.Options{Tokens: []string{"t1", "t2"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, srv.Close()) })
	return srv
}

func pool(t *testing.T, srv *testserver.Server, source flightpool.TokenSource, size int) *flightpool.FlightSQLPool {
	p, err := flightpool.New(t.Context(), srv.URI(), flightpool.Config{
		Auth: flightpool.TokenAuth(source), MinIdle: size, MaxSize: size, MaxConcurrentOpens: size,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close(context.WithoutCancel(t.Context()))) })
	return p
}

func TestConnectionsThatOpenAtOnceMakeOneRequest(t *testing.T) {
	is := newIssuer(t)
	c := is.client()
	c.Scopes, c.Audience, c.Params = []string{"flight.read", "flight.write"}, []string{"warehouse"}, url.Values{"tenant": {"a"}}
	source, err := ClientCredentials(c)
	require.NoError(t, err)
	p := pool(t, server(t), source, 8)
	require.NoError(t, p.WaitReady(t.Context(), 8))
	require.Equal(t, []url.Values{{
		"grant_type": {"client_credentials"}, "scope": {"flight.read flight.write"}, "audience": {"warehouse"}, "tenant": {"a"},
	}}, is.requests)
	require.Equal(t, []string{"reports " + url.QueryEscape(secret)}, is.basic, "RFC 6749 has both encoded first")
}

func TestTheSecretGoesIntoTheBodyWhereThatIsAskedFor(t *testing.T) {
	is := newIssuer(t)
	c := is.client()
	c.SecretInBody = true
	source, err := ClientCredentials(c)
	require.NoError(t, err)
	require.NoError(t, pool(t, server(t), source, 1).Ping(t.Context()))
	require.Equal(t, []url.Values{{"grant_type": {"client_credentials"}, "client_id": {"reports"}, "client_secret": {secret}}}, is.requests)
	require.Equal(t, []string{""}, is.basic)
}

func TestATokenIsExchangedAsRFC8693Says(t *testing.T) {
	is := newIssuer(t)
	fresh := 0
	x := Exchange{
		Client:  Client{TokenURL: is.URL, HTTP: is.Client(), Scopes: []string{"read"}, Audience: []string{"a", "b"}},
		Subject: func(context.Context) (string, error) { fresh++; return fmt.Sprint("subject", fresh), nil }, SubjectType: JWT,
		Actor: func(context.Context) (string, error) { return "actor", nil }, RequestedType: AccessToken, Resources: []string{"https://db.example"},
	}
	source, err := TokenExchange(x)
	require.NoError(t, err)
	require.NoError(t, pool(t, server(t), source, 1).Ping(t.Context()))
	require.Equal(t, []url.Values{{
		"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "scope": {"read"}, "audience": {"a", "b"},
		"subject_token": {"subject1"}, "subject_token_type": {JWT}, "actor_token": {"actor"}, "actor_token_type": {AccessToken},
		"requested_token_type": {AccessToken}, "resource": {"https://db.example"},
	}}, is.requests)
	_, _, err = source(t.Context())
	require.NoError(t, err)
	require.Equal(t, "subject2", is.requests[1].Get("subject_token"), "the subject's token is asked for each time")

	broken := errors.New("no such file")
	x.Subject = func(context.Context) (string, error) { return "", broken }
	source, err = TokenExchange(x)
	require.NoError(t, err)
	_, _, err = source(t.Context())
	require.ErrorIs(t, err, broken)
	require.Equal(t, 2, is.count())
}

func TestARefusedTokenIsReplacedOnceAndTheOpenRepeated(t *testing.T) {
	is := newIssuer(t)
	source, err := ClientCredentials(is.client())
	require.NoError(t, err)
	srv := server(t)
	p := pool(t, srv, source, 4)
	require.NoError(t, p.WaitReady(t.Context(), 4))
	require.True(t, srv.Faults().ExpireToken("t1"))
	p.Reset()
	require.NoError(t, p.WaitReady(t.Context(), 4))
	require.NoError(t, p.Ping(t.Context()))
	require.Equal(t, 2, is.count(), "four connections were refused, one asked for another token")
}

// failsWith opens a pool that must fail, and looks at the words.
func failsWith(t *testing.T, source flightpool.TokenSource, want ...string) {
	t.Helper()
	srv := server(t)
	start := time.Now()
	_, err := flightpool.New(t.Context(), srv.URI(), flightpool.Config{Auth: flightpool.TokenAuth(source), DialTimeout: time.Second})
	require.Error(t, err)
	require.Less(t, time.Since(start), 4*time.Second)
	var e *flightpool.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, backend.StageAuth, e.Stage)
	for _, w := range want {
		require.ErrorContains(t, err, w)
	}
	for _, hidden := range []string{secret, url.QueryEscape(secret), "subject1", "hidden"} {
		require.NotContains(t, err.Error(), hidden)
	}
	require.Zero(t, srv.Ledger().Snapshot().Sessions)
}

func TestAFailureNamesTheEndpointAndNeverASecret(t *testing.T) {
	is := newIssuer(t)
	c := is.client()
	c.TokenURL += "?key=hidden"
	c.Params = url.Values{"client_assertion": {"hidden+assertion"}, "v": {"2"}}
	source, err := ClientCredentials(c)
	require.NoError(t, err)
	x, err := TokenExchange(Exchange{Client: c, Subject: func(context.Context) (string, error) { return "subject1", nil }})
	require.NoError(t, err)
	at := is.URL + "/token"
	for name, tc := range map[string]struct {
		answer func(w http.ResponseWriter, n int, sent url.Values)
		want   string
	}{
		"refused": {func(w http.ResponseWriter, _ int, sent url.Values) {
			reply(w, 401, map[string]any{"error": "invalid_client", "error_description": "no such pair reports:" + secret + sent.Get("subject_token")})
		}, "answered 401: invalid_client: no such pair reports:[secret]"},
		"the header repeated": {func(w http.ResponseWriter, _ int, _ url.Values) {
			pair := url.QueryEscape("reports") + ":" + url.QueryEscape(secret)
			reply(w, 401, map[string]any{"error": "invalid_client", "error_description": "Basic " + base64.StdEncoding.EncodeToString([]byte(pair))})
		}, "invalid_client: Basic [secret]"},
		"what else was sent": {func(w http.ResponseWriter, _ int, sent url.Values) {
			reply(w, 400, map[string]any{"error": "invalid_grant", "error_description": "2 faults: " + sent.Get("client_assertion") + " with key hidden"})
		}, "invalid_grant: 2 faults: [secret] with key [secret]"},
		"an error page": {func(w http.ResponseWriter, _ int, _ url.Values) {
			http.Error(w, "we got "+secret, http.StatusBadGateway)
		}, "answered 502"},
		"no JSON": {func(w http.ResponseWriter, _ int, _ url.Values) { _, _ = fmt.Fprintf(w, "hello %s", secret) }, "access_token"},
		"another kind": {func(w http.ResponseWriter, _ int, _ url.Values) {
			reply(w, 200, map[string]any{"access_token": "hidden", "token_type": "mac"})
		}, "cannot be presented as a bearer token"},
		"a long story": {func(w http.ResponseWriter, _ int, _ url.Values) {
			reply(w, 400, map[string]any{"error": "invalid_request", "error_description": strings.Repeat("é", 1000)})
		}, "é…"},
	} {
		is.mu.Lock()
		is.answer = tc.answer
		is.mu.Unlock()
		t.Run(name, func(t *testing.T) {
			failsWith(t, source, at, tc.want)
			failsWith(t, x, at)
		})
	}
	var e *Error
	_, _, err = source(t.Context())
	require.ErrorAs(t, err, &e)
	require.Equal(t, at, e.Endpoint)

	is.Close()
	failsWith(t, source, at, "refused")
}

func TestAnEndpointThatDoesNotAnswerHoldsUpNobody(t *testing.T) {
	is := newIssuer(t)
	stop := make(chan struct{})
	is.answer = func(http.ResponseWriter, int, url.Values) { <-stop }
	defer close(stop)
	source, err := ClientCredentials(is.client())
	require.NoError(t, err)
	failsWith(t, source, "waiting for a token")
	require.Equal(t, 1, is.count())
}

func TestWhatIsWrongIsSaidBeforeAnythingIsSent(t *testing.T) {
	_, err := ClientCredentials(Client{TokenURL: "http://login.example/token?key=hidden", Secret: "hidden", Params: url.Values{"scope": {"x"}}})
	for _, want := range []string{"TokenURL: http would", "ID: is required", "Secret: needs an ID", "Params: scope"} {
		require.ErrorContains(t, err, want)
	}
	require.NotContains(t, err.Error(), "hidden")
	_, err = TokenExchange(Exchange{ActorType: JWT})
	for _, want := range []string{"TokenURL: is required", "Subject: is required", "ActorType: needs an Actor"} {
		require.ErrorContains(t, err, want)
	}
	for _, bad := range []string{"login.example", "ftp://x/y", "https://me:hidden@x/y", "https://", "http://[::1", "https://x/%zz"} {
		_, err := ClientCredentials(Client{TokenURL: bad, ID: "x"})
		require.ErrorContains(t, err, "TokenURL", bad)
		require.NotContains(t, err.Error(), "hidden")
	}
	for _, good := range []string{"http://127.0.0.1/t", "http://[::1]:8/t", "http://localhost/t", "https://x/t"} {
		_, err := ClientCredentials(Client{TokenURL: good, ID: "x"})
		require.NoError(t, err, good)
	}
	_, err = ClientCredentials(Client{TokenURL: "http://login.example/t", ID: "x", AllowPlainHTTP: true})
	require.NoError(t, err)
	c := Client{TokenURL: "https://login.example/t?key=hidden", ID: "reports", Secret: "hidden"}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		require.Equal(t, `client "reports" of https://login.example/t`, fmt.Sprintf(verb, c))
		require.NotContains(t, fmt.Sprintf(verb, Exchange{Client: c}), "hidden")
	}
}

func TestNoRedirectIsFollowed(t *testing.T) {
	for _, code := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		for _, inBody := range []bool{true, false} {
			asked := 0
			elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				asked++
				reply(w, 200, map[string]any{"access_token": "x", "token_type": "bearer"})
			}))
			endpoint := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, elsewhere.URL, code)
			}))
			mine := endpoint.Client()
			source, err := ClientCredentials(Client{TokenURL: endpoint.URL, ID: "reports", Secret: secret, SecretInBody: inBody, HTTP: mine})
			require.NoError(t, err)
			_, _, err = source(t.Context())
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, code, e.Status)
			require.Zero(t, asked, "%d: the secret stays with the endpoint", code)
			require.Nil(t, mine.CheckRedirect, "the user's client is not changed")
			endpoint.Close()
			elsewhere.Close()
		}
	}
}
