// Package oauth gives a pool its tokens by OAuth 2: client credentials
// (RFC 6749) and token exchange (RFC 8693), over golang.org/x/oauth2.
//
//	source, err := oauth.ClientCredentials(oauth.Client{
//		TokenURL: "https://login.example/oauth2/token", ID: "reports", Secret: secret, Scopes: []string{"flight.read"},
//	})
//	...
//	pool, err := flightpool.New(ctx, target, flightpool.Config{Auth: flightpool.TokenAuth(source)})
//
// The pool asks for another token when it opens a connection in the second half of
// the life of the last, and uses that until shortly before it expires where it gets none.
// When the server refuses it, as Unauthenticated, the pool asks for another and repeats the
// open once. However many connections need a token at a time, the token
// endpoint gets one request, which belongs to the pool and does not end with
// the caller who needed it first.
//
// A refresh token is never used: both grants can be repeated.
//
// Errors name the token endpoint and what it answered: the status and the
// error and error_description of the protocol. Its URL's query, the rest of
// the answer, and whatever looks like the secret, a token or a parameter that
// was sent are left out.
package oauth
