package flightconn

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// reuseScheme is the location that means "this connection".
const reuseScheme = "arrow-flight-reuse-connection"

// place is where a location is, and what may be shown there.
type place struct {
	network, addr string
	secure        bool
	sameHost      bool // as the endpoint's
	trusted       bool // credentials, cookies and headers go there
	foreign       bool // it must not turn out to be this machine or link-local
}

// place finds out where a location is and whether rows may be fetched there:
// Config.Locations decides, or by default defaultLocations.
func (cfg *Config) place(uri string) (place, error) {
	u, err := url.Parse(uri)
	if err != nil {
		return place{}, errors.New("the location is no URI")
	}
	at, err := parseLocation(u)
	if err != nil {
		return place{}, err
	}
	at.sameHost = cfg.isSameHost(at)
	if cfg.Locations == nil {
		at.trusted, at.foreign = at.sameHost, !at.sameHost
		return at, cfg.defaultLocations(at)
	}
	u.User = nil // it is the server's, and nothing to decide by
	allow := false
	at.trusted, err = contained("Config.Locations", func() (sendCredentials bool, _ error) {
		allow, sendCredentials = cfg.Locations(u)
		return sendCredentials, nil
	})
	switch {
	case err != nil:
		return place{}, err
	case !allow:
		return place{}, errors.New("Config.Locations does not allow the location")
	}
	return at, nil
}

// defaultLocations is nil for a location that may be asked. A server could make
// us show our credentials to anybody on the way, or reach what only this
// machine can: its sockets, loopback services and link-local ones.
func (cfg *Config) defaultLocations(at place) error {
	switch {
	case cfg.TLS != nil && !at.secure:
		return errors.New("the location is not encrypted but the connection is")
	case at.network == "unix" && cfg.Network != "unix":
		return errors.New("the location is a socket of this machine and the server is not; Config.Locations could allow it")
	case !at.sameHost && isLocal(hostOf(at.addr)):
		return errLocal
	default:
		return nil
	}
}

// errLocal refuses what only this machine can reach.
var errLocal = errors.New("the location is a loopback or link-local address and the server is not; Config.Locations could allow it")

// notLocal is dialDirect's check of a foreign location: its name may lead
// anywhere, so that the address found for it counts, each of several.
func (cfg *Config) notLocal(addr string) error {
	if isLocal(hostOf(addr)) && !isLoopback(hostOf(cfg.Address)) && !cfg.dials.local.Load() {
		return errLocal
	}
	return nil
}

// isSameHost compares a location with the endpoint by host, not by port.
func (cfg *Config) isSameHost(at place) bool {
	mine, theirs := hostOf(cfg.Address), hostOf(at.addr)
	switch {
	case cfg.Network == "unix":
		return at.network == "unix" || isLoopback(theirs)
	case at.network == "unix":
		return isLoopback(mine)
	default:
		return mine != "" && strings.EqualFold(mine, theirs) || isLoopback(mine) && isLoopback(theirs)
	}
}

// isOwn recognises the endpoint itself in a location. The server's own address
// is one: there the session's cookies and temporary tables are at hand. Servers
// that listen on all interfaces are known to name the unspecified address, or no
// host.
func (cfg *Config) isOwn(at place) bool {
	if at.network != cfg.Network || at.secure != (cfg.TLS != nil) {
		return false
	}
	if at.network == "unix" {
		return at.addr == cfg.Address
	}
	host, port, err := net.SplitHostPort(at.addr)
	if err != nil {
		return false
	}
	_, mine, err := net.SplitHostPort(cfg.Address)
	return err == nil && port == mine && (cfg.isSameHost(at) || host == "" || addressOf(host).IsUnspecified())
}

// isHere recognises our own transport in a location.
func (c *Conn) isHere(uri string) bool {
	if uri == "" {
		return true
	}
	u, err := url.Parse(uri)
	if err != nil {
		return false
	}
	if u.Scheme == reuseScheme {
		return true
	}
	at, err := parseLocation(u)
	return err == nil && c.cfg().isOwn(at)
}

func parseLocation(u *url.URL) (place, error) {
	switch u.Scheme {
	case "grpc", "grpc+tcp", "grpc+tls":
		if u.Port() == "" {
			return place{}, errors.New("the location has no port")
		}
		return place{network: "tcp", addr: u.Host, secure: u.Scheme == "grpc+tls"}, nil
	case "grpc+unix":
		return place{network: "unix", addr: u.Path}, nil
	default:
		return place{}, fmt.Errorf("scheme %q is not supported", u.Scheme)
	}
}

// hostOf is the host of an address, empty for a path.
func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(host, ".")
}

func isLoopback(host string) bool {
	return strings.EqualFold(host, "localhost") || addressOf(host).IsLoopback()
}

// isLocal reports whether an address is of this machine, as that without a host
// is, or of its link.
func isLocal(host string) bool {
	ip := addressOf(host)
	return host == "" || isLoopback(host) || ip.IsLinkLocalUnicast() || ip.IsLinkLocalMulticast() || ip.IsUnspecified()
}

// addressOf reads an IP address, with a zone too; it is of no kind if host is
// none.
func addressOf(host string) netip.Addr {
	ip, _ := netip.ParseAddr(host)
	return ip.Unmap()
}

// longestLocation bounds what a location contributes to an error.
const longestLocation = 120

// showLocation is a location as errors show it: without what it may have of
// credentials, in its user part or its query.
func showLocation(uri string) string {
	u, err := url.Parse(uri)
	if err != nil {
		return "(no URI)"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	text := u.String()
	if len(text) > longestLocation {
		text = strings.ToValidUTF8(text[:longestLocation], "") + "…"
	}
	return fmt.Sprintf("%q", text)
}
