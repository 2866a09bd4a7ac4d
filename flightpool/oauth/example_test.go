package oauth_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/oauth"
	"github.com/flightpool/flightpool/testserver"
)

// A pool whose tokens an issuer gives, for the program's own name and secret.
func ExampleClientCredentials() {
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"access_token": "t1", "token_type": "Bearer", "expires_in": 3600}`)
	}))
	defer issuer.Close()
	server, err := testserver.Start(testserver.Options{Tokens: []string{"t1"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()

	source, err := oauth.ClientCredentials(oauth.Client{TokenURL: issuer.URL, ID: "reports", Secret: "secret"})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	pool, err := flightpool.New(ctx, server.URI(), flightpool.Config{Auth: flightpool.TokenAuth(source)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close(ctx)
	fmt.Println(flightpool.CollectOneRow[int64](pool.Query(ctx, "SELECT 42")))
	// Output: 42 <nil>
}
