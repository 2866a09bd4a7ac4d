package poolz_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/poolz"
	"github.com/flightpool/flightpool/testserver"
)

// The page of a pool, and the same as JSON.
func ExampleNew() {
	server, err := testserver.Start(testserver.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	page := poolz.New(poolz.Config{})
	defer page.Close()
	ctx := context.Background()
	pool, err := flightpool.New(ctx, server.URI(), flightpool.Config{Tracer: page.Tracer("warehouse")})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close(ctx)
	page.Add("warehouse", pool)

	mux := http.NewServeMux()
	mux.Handle("/debug/poolz/", page)
	site := httptest.NewServer(mux) // on 127.0.0.1
	defer site.Close()
	for _, path := range []string{"", "state.json?source=warehouse"} {
		answer, err := http.Get(site.URL + "/debug/poolz/" + path)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(answer.StatusCode, answer.Header.Get("Content-Type"))
		if path != "" {
			fmt.Println(json.NewDecoder(answer.Body).Decode(&struct{}{}))
		}
		answer.Body.Close()
	}
	// Output:
	// 200 text/html; charset=utf-8
	// 200 application/json
	// <nil>
}
