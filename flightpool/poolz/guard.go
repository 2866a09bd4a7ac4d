package poolz

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// ServeHTTP answers GET and HEAD: the page, and at state.json its numbers.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", p.policy())
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	switch reason := p.refuses(r); {
	case reason != "":
		http.Error(w, reason, http.StatusForbidden)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "poolz: it only reads", http.StatusMethodNotAllowed)
	case strings.HasSuffix("/"+r.URL.Path, "/"): // with http.StripPrefix it may be empty
		h.Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(document.text) // the browser has gone
	case strings.HasSuffix("/"+r.URL.Path, "/state.json"):
		p.serveState(w, r)
	default:
		http.NotFound(w, r)
	}
}

// policy is what the document may do: run its own script and style, and ask its own server.
func (*Page) policy() string {
	return "default-src 'none'; script-src " + document.scripts + "; style-src " + document.styles +
		"; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

// isForwarded says whether a proxy tells of itself, which stands between the page and
// somebody else. One that does not cannot be told from a browser on this machine.
func isForwarded(h http.Header) bool {
	for name := range h {
		if slices.ContainsFunc(ofProxies, func(begins string) bool { return strings.HasPrefix(name, begins) }) {
			return true
		}
	}
	return false
}

// ofProxies are what names of headers begin with that proxies, load balancers and tunnels add.
var ofProxies = []string{
	"Forwarded", "Via", "X-Forwarded-", "X-Original-", "X-Real-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "True-Client-Ip", "Client-Ip",
	"X-Envoy-", "X-Amzn-", "X-Azure-", "X-Appengine-", "X-Cloud-Trace-", "Cf-", "Fly-", "Fastly-", "Tailscale-", "Ngrok-",
}

// refuses says why a request is not answered; empty: it is. A page of another site may
// have its own name resolve to 127.0.0.1, so that a browser here asks on its behalf:
// such a request has that name as its host. A browser tells of the sites that
// a request comes from.
func (p *Page) refuses(r *http.Request) string {
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" && r.Header.Get("Sec-Fetch-Mode") != "navigate" {
		return "poolz: other sites may not read this"
	}
	if p.cfg.AllowRemote {
		return ""
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() {
		return "poolz: only this machine may read this (see Config.AllowRemote)"
	}
	if !isLocal(r.Host) {
		return "poolz: the host must be localhost or a loopback address (see Config.AllowRemote)"
	}
	if isForwarded(r.Header) {
		return "poolz: the request came through a proxy (see Config.AllowRemote)"
	}
	return ""
}

// isLocal says whether a Host header names this machine.
func isLocal(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && addr.Unmap().IsLoopback()
}
