package poolz

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhoIsAnswered(t *testing.T) {
	local, remote := New(Config{}), New(Config{AllowRemote: true})
	defer local.Close()
	defer remote.Close()
	for name, c := range map[string]struct {
		peer, host string
		header     []string
		local      int
		remote     int
	}{
		"this machine":                  {"127.0.0.1:1", "localhost:80", nil, 200, 200},
		"its address":                   {"127.9.0.1:1", "127.0.0.1", nil, 200, 200},
		"over IPv6":                     {"[::1]:1", "[::1]:6060", nil, 200, 200},
		"over IPv6, no port":            {"[::1]:1", "[::1]", nil, 200, 200},
		"an IPv4 address as one of six": {"[::ffff:127.0.0.1]:1", "LOCALHOST", nil, 200, 200},
		"another machine":               {"192.0.2.1:1", "localhost", nil, 403, 200},
		"no address":                    {"@", "localhost", nil, 403, 200},
		"a name that is rebound":        {"127.0.0.1:1", "evil.example:6060", nil, 403, 200},
		"a name like ours":              {"127.0.0.1:1", "localhost.evil.example", nil, 403, 200},
		"an address like ours":          {"127.0.0.1:1", "127.0.0.1.evil.example", nil, 403, 200},
		"no name":                       {"127.0.0.1:1", "", nil, 403, 200},
		"a proxy":                       {"127.0.0.1:1", "localhost", []string{"X-Forwarded-For", "192.0.2.1"}, 403, 200},
		"a proxy that hides the name":   {"127.0.0.1:1", "localhost", []string{"X-Forwarded-Proto", "https"}, 403, 200},
		"a proxy by its own name":       {"127.0.0.1:1", "localhost", []string{"Via", "1.1 proxy"}, 403, 200},
		"a load balancer":               {"127.0.0.1:1", "localhost", []string{"X-Amzn-Trace-Id", "Root=1"}, 403, 200},
		"a tunnel":                      {"127.0.0.1:1", "localhost", []string{"CF-Connecting-IP", "192.0.2.1"}, 403, 200},
		"a page of another site":        {"127.0.0.1:1", "localhost", []string{"Sec-Fetch-Site", "cross-site"}, 403, 403},
		"the page itself":               {"127.0.0.1:1", "localhost", []string{"Sec-Fetch-Site", "same-origin"}, 200, 200},
	} {
		for page, want := range map[*Page]int{local: c.local, remote: c.remote} {
			for _, path := range []string{"/", "/debug/poolz/", "/debug/poolz/state.json", "", "state.json"} {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
				r.RemoteAddr, r.Host, r.URL.Path = c.peer, c.host, path
				if c.header != nil {
					r.Header.Set(c.header[0], c.header[1])
				}
				w := httptest.NewRecorder()
				page.ServeHTTP(w, r)
				require.Equal(t, want, w.Code, "%s: %s", name, path)
				require.Contains(t, w.Header().Get("Content-Security-Policy"), "frame-ancestors 'none'")
				require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
				require.Equal(t, want == 200, strings.Contains(w.Body.String(), "<html") || strings.Contains(w.Body.String(), `"sources"`), "%s: %s", name, w.Body)
			}
		}
	}
}

func TestItOnlyReads(t *testing.T) {
	page := New(Config{})
	defer page.Close()
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions} {
		r := httptest.NewRequestWithContext(t.Context(), method, "/state.json", nil)
		r.RemoteAddr, r.Host = "127.0.0.1:1", "localhost"
		w := httptest.NewRecorder()
		page.ServeHTTP(w, r)
		require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	}
	require.Equal(t, http.StatusNotFound, get(t, page, "/page.js").Code)
	for _, query := range []string{"?rows=x", "?rows=-1", "?rows=10001"} {
		require.Equal(t, http.StatusBadRequest, get(t, page, "/state.json"+query).Code)
	}
}

// The page is one document: it asks nobody else for anything.
func TestTheDocumentStandsAlone(t *testing.T) {
	page := New(Config{})
	defer page.Close()
	w := get(t, page, "/")
	text := w.Body.String()
	for _, outside := range []string{"http:", "https:", "src=", "href=\"/", "@import", "url(", "innerHTML", "eval("} {
		require.NotContains(t, strings.ReplaceAll(text, "http://www.w3.org/2000/svg", ""), outside)
	}
	require.NotContains(t, text, "/*style*/")
	require.NotContains(t, w.Header().Get("Content-Security-Policy"), "unsafe")
}
