package oauth

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/errjoin"
)

// Types of tokens, by the names that RFC 8693 gives them.
const (
	AccessToken  = "urn:ietf:params:oauth:token-type:access_token"
	RefreshToken = "urn:ietf:params:oauth:token-type:refresh_token"
	IDToken      = "urn:ietf:params:oauth:token-type:id_token"
	JWT          = "urn:ietf:params:oauth:token-type:jwt"
	SAML1        = "urn:ietf:params:oauth:token-type:saml1"
	SAML2        = "urn:ietf:params:oauth:token-type:saml2"
)

const exchangeGrant = "urn:ietf:params:oauth:grant-type:token-exchange"

// Exchange says which token is exchanged for one that the Flight server
// accepts. It prints without secrets.
type Exchange struct {
	// Client is who asks, and what for.
	Client Client

	// Subject gives the token to exchange. Required. It is called before
	// each request, so that a token that expires, such as the one that
	// Kubernetes keeps in a file, is fresh. ctx is that of the request.
	Subject     func(ctx context.Context) (string, error)
	SubjectType string // its type (AccessToken)

	// Actor, when set, gives the token of the party that acts for the
	// subject.
	Actor     func(ctx context.Context) (string, error)
	ActorType string // its type (AccessToken)

	// RequestedType is the type of token wanted. Empty: the server's choice.
	RequestedType string

	// Resources are URIs of the services that the token is for. None: not
	// sent.
	Resources []string
}

// TokenExchange gives tokens in exchange for others. It sends nothing yet.
// Errors name the fields that are wrong, all of them.
func TokenExchange(x Exchange) (flightpool.TokenSource, error) {
	faults := x.Client.faults()
	if x.Subject == nil {
		faults = append(faults, fmt.Errorf("%s: is required", "Subject"))
	}
	if x.Actor == nil && x.ActorType != "" {
		faults = append(faults, errors.New("ActorType: needs an Actor"))
	}
	if err := errjoin.Join(faults...); err != nil {
		return nil, fmt.Errorf("oauth: %w", err)
	}
	return x.token, nil
}

func (x Exchange) token(ctx context.Context) (string, time.Time, error) {
	subject, err := x.Subject(ctx)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("oauth: the token to exchange: %w", err)
	}
	grant := url.Values{"grant_type": {exchangeGrant}, "subject_token": {subject}, "subject_token_type": {orAccessToken(x.SubjectType)}}
	actor := ""
	if x.Actor != nil {
		if actor, err = x.Actor(ctx); err != nil {
			return "", time.Time{}, fmt.Errorf("oauth: the actor's token: %w", err)
		}
		grant["actor_token"], grant["actor_token_type"] = []string{actor}, []string{orAccessToken(x.ActorType)}
	}
	if x.RequestedType != "" {
		grant.Set("requested_token_type", x.RequestedType)
	}
	if len(x.Resources) > 0 {
		grant["resource"] = x.Resources
	}
	return x.Client.request(ctx, grant, x.Client.Secret, subject, actor)
}

func orAccessToken(kind string) string {
	if kind == "" {
		return AccessToken
	}
	return kind
}
