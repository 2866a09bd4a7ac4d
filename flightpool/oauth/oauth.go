package oauth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/netname"
	"github.com/flightpool/flightpool/internal/option"
	"github.com/flightpool/flightpool/internal/printing"
)

// Client says who asks which token endpoint for what. It prints without its
// secret, in JSON too.
type Client struct {
	// TokenURL is the token endpoint. Required. It must be https, or http on
	// a loopback address, unless AllowPlainHTTP.
	TokenURL string

	// ID and Secret are the client's credentials. ID is required for client
	// credentials. With token exchange a client may have neither.
	ID, Secret string

	// SecretInBody sends ID and Secret as parameters of the request. The
	// default is a Basic header, which RFC 6749 asks every server to accept;
	// some accept only the other.
	SecretInBody bool

	// Scopes are asked for together. None: what the server gives by default.
	Scopes []string

	// Audience names the services that the token is for, as some servers
	// need to be told. None: not sent.
	Audience []string

	// Params are further parameters of the request. They must not repeat
	// those that have a field.
	Params url.Values

	// AllowPlainHTTP sends the secret over a connection that anybody on the
	// way can read.
	AllowPlainHTTP bool

	// HTTP makes the requests, for example through a proxy or with roots of
	// your own. Default: http.DefaultClient, which heeds HTTPS_PROXY. Its
	// redirects are not followed: an endpoint that redirects fails, since the
	// secret would go to wherever the answer says.
	HTTP *http.Client
}

// ClientCredentials gives tokens for the client itself. It sends nothing yet.
// Errors name the fields that are wrong, all of them.
func ClientCredentials(c Client) (flightpool.TokenSource, error) {
	faults := c.faults()
	if c.ID == "" {
		faults = append(faults, errors.New("ID: is required"))
	}
	if err := errjoin.Join(faults...); err != nil {
		return nil, fmt.Errorf("oauth: %w", err)
	}
	return func(ctx context.Context) (string, time.Time, error) {
		return c.request(ctx, nil, c.Secret)
	}, nil
}

// withoutRedirects is Client.HTTP, but a redirect is the answer. RFC 6749 has no
// redirects from a token endpoint, and a 307 or 308 would take the request, with
// its secret, to any host and down to plain http.
func (c Client) withoutRedirects() *http.Client {
	client := *cmp.Or(c.HTTP, http.DefaultClient)
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &client
}

// reservedParams have a field of their own.
var reservedParams = []string{
	"grant_type", "scope", "audience", "client_id", "client_secret",
	"subject_token", "subject_token_type", "actor_token", "actor_token_type", "requested_token_type", "resource",
}

func (c Client) faults() []error {
	fault, faults := option.Collect("")
	u, err := url.Parse(c.TokenURL)
	switch {
	case c.TokenURL == "":
		fault(true, "TokenURL: is required")
	case err != nil:
		fault(true, "TokenURL: is no URL") // the parser's error would repeat it, secrets and all
	default:
		fault(u.Scheme != "https" && u.Scheme != "http", "TokenURL: %q is neither https nor http", u.Scheme)
		fault(u.Host == "", "TokenURL: has no host")
		fault(u.User != nil, "TokenURL: put the credentials into ID and Secret")
		fault(u.Scheme == "http" && !netname.IsLoopback(u.Hostname()) && !c.AllowPlainHTTP,
			"TokenURL: http would send the secret readable for everybody on the way; use https, or set AllowPlainHTTP")
	}
	fault(c.ID == "" && c.Secret != "", "Secret: needs an ID")
	for _, name := range reservedParams {
		fault(c.Params.Has(name), "Params: %s has a field of its own", name)
	}
	return *faults
}

// request asks for a token. secrets must not show in errors.
func (c Client) request(ctx context.Context, grant url.Values, secrets ...string) (string, time.Time, error) {
	params := url.Values{}
	for _, more := range []url.Values{c.Params, grant} {
		for name, values := range more {
			params[name] = values
		}
	}
	if len(c.Audience) > 0 {
		params["audience"] = c.Audience
	}
	style := oauth2.AuthStyleInHeader
	if c.SecretInBody || c.ID == "" {
		style = oauth2.AuthStyleInParams
	}
	cfg := clientcredentials.Config{
		ClientID: c.ID, ClientSecret: c.Secret, TokenURL: c.TokenURL, Scopes: c.Scopes, EndpointParams: params, AuthStyle: style,
	}
	token, err := cfg.Token(context.WithValue(ctx, oauth2.HTTPClient, c.withoutRedirects()))
	if err != nil {
		return "", time.Time{}, c.newError(err, secrets)
	}
	// RFC 8693 says N_A for a token that is not meant to be an access token.
	if kind := token.TokenType; kind != "" && !strings.EqualFold(kind, "bearer") && !strings.EqualFold(kind, "n_a") {
		return "", time.Time{}, c.newError(fmt.Errorf("gave a token of type %q, which cannot be presented as a bearer token", kind), secrets)
	}
	return token.AccessToken, token.Expiry, nil
}

// String names the client and the endpoint.
func (c Client) String() string {
	return fmt.Sprintf("client %q of %s", c.ID, endpointName(c.TokenURL))
}

// Format prints String under every verb.
func (c Client) Format(f fmt.State, _ rune) { printing.Format(f, c.String()) }

// LogValue is String, for slog.
func (c Client) LogValue() slog.Value { return slog.StringValue(c.String()) }

// MarshalJSON gives String. It cannot be read back.
func (c Client) MarshalJSON() ([]byte, error) { return printing.JSON(c.String()) }

// String names who exchanges.
func (x Exchange) String() string { return "exchange by " + x.Client.String() }

// Format prints String under every verb.
func (x Exchange) Format(f fmt.State, _ rune) { printing.Format(f, x.String()) }

// LogValue is String, for slog.
func (x Exchange) LogValue() slog.Value { return slog.StringValue(x.String()) }

// MarshalJSON gives String.
func (x Exchange) MarshalJSON() ([]byte, error) { return printing.JSON(x.String()) }
