package oauth

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// rawEndpoint answers each request byte by byte by what answer makes of its first line, its credentials and its body.
func rawEndpoint(t *testing.T, answer func(head, body string) string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if req, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				body, _ := io.ReadAll(req.Body)
				_, _ = io.WriteString(c, answer(req.Method+" "+req.URL.String()+" "+req.Header.Get("Authorization"), string(body)))
			}
			_ = c.Close()
		}
	}()
	return "http://" + l.Addr().String() + "/token"
}

func inJSON(status, body string) string {
	return fmt.Sprintf("HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
}

// TestNothingOfTheRequestShowsWhateverTheAnswerIs has endpoints that repeat their request, most of them in what is no
// answer of HTTP, which net/http quotes. Each error of the chain may be printed.
func TestNothingOfTheRequestShowsWhateverTheAnswerIs(t *testing.T) {
	described := func(text string) string {
		return inJSON("400 Bad Request", `{"error":"invalid_grant","error_description":"`+text+`"}`)
	}
	for name, answer := range map[string]func(head, body string) string{
		"the request":    func(head, body string) string { return head + "\r\n" + body + "\r\n\r\n" },
		"the body":       func(_, body string) string { return body + "\r\n\r\n" },
		"as a status":    func(_, body string) string { return "HTTP/1.1 " + url.QueryEscape(body) + " x\r\n\r\n" },
		"as a header":    func(_, body string) string { return "HTTP/1.1 400 Bad\r\n" + body + "\r\n\r\n" },
		"as a version":   func(_, body string) string { return "HTTP/" + body + " 200 OK\r\n\r\n" },
		"as a length":    func(_, body string) string { return "HTTP/1.1 200 OK\r\nContent-Length: " + body + "\r\n\r\n" },
		"as an encoding": func(_, body string) string { return "HTTP/1.1 200 OK\r\nTransfer-Encoding: " + body + "\r\n\r\n" },
		"as a redirect": func(_, body string) string {
			return "HTTP/1.1 302 Found\r\nLocation: http://x/%zz?" + body + "\r\n\r\n"
		},
		"as a lifetime":    func(_, body string) string { return inJSON("200 OK", `{"access_token":"a","expires_in":"`+body+`"}`) },
		"as a type":        func(_, body string) string { return inJSON("200 OK", `{"access_token":"a","token_type":"`+body+`"}`) },
		"as an error":      func(_, body string) string { return inJSON("400 Bad Request", `{"error":"`+body+`"}`) },
		"in a description": func(_, body string) string { return described(body) },
		"with credentials": func(head, _ string) string { return described(head) },
		"with escapes of its own": func(_, body string) string {
			return described(strings.ReplaceAll(strings.ReplaceAll(body, "%2F", "%2f"), "%2B", "%2b"))
		},
		"with some escapes":        func(_, body string) string { return described(strings.ReplaceAll(body, "%26", "&")) },
		"with escapes of escapes":  func(_, body string) string { return described(url.QueryEscape(body)) },
		"what no answer begins as": func(head, body string) string { return "\x15\x03\x01" + head + body },
	} {
		t.Run(name, func(t *testing.T) {
			at := rawEndpoint(t, answer)
			for _, inBody := range []bool{true, false} {
				source, err := ClientCredentials(Client{
					TokenURL: at + "?key=k%2Fhidden", ID: "reports", Secret: secret, SecretInBody: inBody,
					Params: url.Values{"client_assertion": {"hidden+assertion"}},
				})
				require.NoError(t, err)
				_, _, err = source(t.Context())
				require.ErrorContains(t, err, "oauth: token endpoint "+at)
				for ; err != nil; err = errors.Unwrap(err) {
					for _, verb := range []string{"%v", "%+v", "%#v"} {
						for _, hidden := range []string{secret, "t%2F", "t%2f", "t%252F", "hidden"} {
							require.NotContains(t, fmt.Sprintf(verb, err), hidden)
						}
					}
				}
			}
		})
	}
}

// TestWhatIsNoSecretIsStillTold keeps the reason of the network, and its type.
func TestWhatIsNoSecretIsStillTold(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	source, err := ClientCredentials(Client{TokenURL: "http://" + l.Addr().String(), ID: "reports", Secret: `\\`})
	require.NoError(t, err)
	_, _, err = source(t.Context())
	var op *net.OpError
	require.ErrorAs(t, err, &op)
	require.ErrorContains(t, err, "refused")
}

func TestGrantsOfOtherForms(t *testing.T) {
	const never = 0
	for body, want := range map[string]struct {
		life time.Duration
		err  string
	}{
		`{"access_token":"a"}`:                                       {never, ""},
		`{"access_token":"a","expires_in":"3600"}`:                   {time.Hour, ""},
		`{"access_token":"a","expires_in":null}`:                     {never, ""},
		`{"access_token":"a","expires_in":0}`:                        {never, ""},
		`{"access_token":"a","expires_in":-60}`:                      {-time.Minute, ""},
		`{"access_token":"a","expires_in":99999999999}`:              {(1<<31 - 1) * time.Second, ""},
		`{"access_token":"a","expires_in":1e99}`:                     {0, "cannot parse json"},
		`{"access_token":"a","token_type":"BEARER"}`:                 {never, ""},
		`{"access_token":"a","token_type":"N_A"}`:                    {never, ""},
		`{"access_token":"a","token_type":"DPoP"}`:                   {0, `a token of type "DPoP"`},
		`{"access_token":null}`:                                      {0, "missing access_token"},
		`{"access_token":["hidden"]}`:                                {0, "cannot parse json"},
		`{"error":"slow_down","access_token":"hidden"}`:              {0, "answered 200: slow_down"},
		`{"access_token":"` + strings.Repeat("hidden", 1<<20) + `"}`: {0, "unexpected end"},
	} {
		source, err := ClientCredentials(Client{TokenURL: rawEndpoint(t, func(string, string) string { return inJSON("200 OK", body) }), ID: "reports"})
		require.NoError(t, err)
		token, expires, err := source(t.Context())
		if want.err != "" {
			require.ErrorContains(t, err, want.err)
			require.NotContains(t, err.Error(), "hidden")
			continue
		}
		require.NoError(t, err, body)
		require.Equal(t, "a", token)
		if want.life == never {
			require.True(t, expires.IsZero(), body)
			continue
		}
		require.WithinDuration(t, time.Now().Add(want.life), expires, 30*time.Second, body)
	}
}
