package oauth

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/oauth2"

	"github.com/flightpool/flightpool/reservoir"
)

// Error is a request for a token that failed.
type Error struct {
	Endpoint    string // the token endpoint, without its query
	Status      int    // of its HTTP answer; 0: there was none, or it could not be used
	Code        string // the protocol's error, such as "invalid_client"; may be empty
	Description string // what the endpoint says of it; may be empty

	// Err is what the network or the reading of the answer failed with, nil
	// where the endpoint refused.
	Err error
}

// Error names the endpoint and what it said.
func (e *Error) Error() string {
	s := "oauth: token endpoint " + e.Endpoint
	if e.Status != 0 {
		s += fmt.Sprintf(" answered %d", e.Status)
	}
	for _, part := range []string{e.Code, e.Description} {
		if part != "" {
			s += ": " + part
		}
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// permanentCodes are the refusals (RFC 6749, section 5.2) that the same request meets
// again: callers of a pool do not wait for another attempt.
var permanentCodes = []string{"invalid_request", "invalid_client", "unauthorized_client", "unsupported_grant_type", "invalid_scope"}

// maxErrorText bounds what an endpoint may contribute to an error's text.
const maxErrorText = 300

// secretsOf are the texts that no error may show: those given, and whatever else is
// sent that may be one. Params and a URL's query have assertions, passwords and keys,
// under any name; what is shorter than minSecret is a word or a number. A text that
// contains another comes first, or a part of it would stay.
func (c Client) secretsOf(given []string) []string {
	secrets := slices.Clone(given)
	if c.Secret != "" { // as the Basic header carries it
		pair := url.QueryEscape(c.ID) + ":" + url.QueryEscape(c.Secret)
		secrets = append(secrets, base64.StdEncoding.EncodeToString([]byte(pair)))
	}
	u, _ := url.Parse(c.TokenURL) // faults has seen that it is one
	for _, sent := range []url.Values{c.Params, u.Query()} {
		for _, values := range sent {
			secrets = append(secrets, slices.DeleteFunc(slices.Clone(values), func(v string) bool { return len(v) < minSecret })...)
		}
	}
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	return secrets
}

const minSecret = 4

// newError makes an Error in which none of the secrets shows: endpoints have been
// seen to repeat what they were sent, and net/http quotes an answer that is none of HTTP.
func (c Client) newError(err error, given []string) error {
	e, secrets := &Error{Endpoint: endpointName(c.TokenURL)}, c.secretsOf(given)
	var refused *oauth2.RetrieveError
	var failed *url.Error
	switch {
	case errors.As(err, &refused):
		e.Status = refused.Response.StatusCode
		e.Code, e.Description = redact(refused.ErrorCode, secrets), redact(refused.ErrorDescription, secrets)
		if slices.Contains(permanentCodes, refused.ErrorCode) {
			return reservoir.Permanent(e)
		}
	case errors.As(err, &failed): // its own text has the whole URL
		if e.Err = failed.Err; showsSecret(e.Err, secrets) {
			e.Err = errors.New(redact(failed.Err.Error(), secrets))
		}
	default:
		e.Err = errors.New(redact(strings.TrimPrefix(err.Error(), "oauth2: "), secrets))
	}
	return e
}

// showsSecret reports whether a secret shows in an error or in what it wraps, each of
// which a caller may print.
func showsSecret(err error, secrets []string) bool {
	if err == nil {
		return false
	}
	if text := err.Error(); withoutSecrets(text, secrets) != text {
		return true
	}
	switch e := err.(type) { //nolint:errorlint // the chain is walked here
	case interface{ Unwrap() error }:
		return showsSecret(e.Unwrap(), secrets)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), func(err error) bool { return showsSecret(err, secrets) })
	default:
		return false
	}
}

func redact(text string, secrets []string) string {
	if text = withoutSecrets(text, secrets); len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "") + "…"
	}
	return text
}

// withoutSecrets is text with each secret, as it is and as a request has it, left out; or
// none of it where a secret stands in it in another form.
func withoutSecrets(text string, secrets []string) string {
	const mark = "\x00"
	for _, secret := range secrets {
		if secret == "" {
			continue
		}
		text = strings.NewReplacer(secret, mark, url.QueryEscape(secret), mark).Replace(text)
		if len(secret) >= minSecret && strings.Contains(unescaped(text), unescaped(secret)) {
			return "[left out, since it repeats what was sent]"
		}
	}
	return strings.ReplaceAll(text, mark, "[secret]")
}

// unescaped is text without the escapes of URLs, up to three times, and of quotation.
func unescaped(text string) string {
	for range 3 {
		text = urlEscape.ReplaceAllStringFunc(text, func(escape string) string {
			n, _ := strconv.ParseUint(escape[1:], 16, 8) // the pattern has seen to it
			return string([]byte{byte(n)})
		})
	}
	return strings.NewReplacer("+", " ", `\`, "").Replace(text)
}

var urlEscape = regexp.MustCompile("%[0-9A-Fa-f]{2}")

// endpointName is the URL as far as it can be shown.
func endpointName(tokenURL string) string {
	u, err := url.Parse(tokenURL)
	if err != nil {
		return "(not a URL)"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}
