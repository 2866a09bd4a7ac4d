package flightconn

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"github.com/flightpool/flightpool/internal/netname"
)

// reuseScheme is the location that means "this connection".
const reuseScheme = "arrow-flight-reuse-connection"

// locationAddr is where a location is, and what may be shown there. It is also
// the key of its client (locations): two that differ in what may be shown there
// have two clients.
type locationAddr struct {
	network, addr   string
	secure          bool
	sameHost        bool // as the endpoint's
	getsCredentials bool // credentials, cookies and headers go there
	mustBeRemote    bool // it must not turn out to be this machine or link-local
}

// resolveLocation finds out where a location is and whether rows may be fetched there:
// Config.Locations decides, or by default checkLocation.
//
// With Config.Locations nothing else is looked at, neither the host nor whether
// it is encrypted: the user has decided. The URI comes from the server, so
// errors do not repeat it; redactLocation names it.
func (cfg *Config) resolveLocation(uri string) (locationAddr, error) {
	u, err := url.Parse(uri)
	if err != nil {
		return locationAddr{}, errors.New("the location is no URI")
	}
	at, err := parseLocation(u)
	if err != nil {
		return locationAddr{}, err
	}
	at.sameHost = cfg.isSameHost(at)
	if cfg.Locations == nil {
		at.getsCredentials, at.mustBeRemote = at.sameHost, !at.sameHost
		return at, cfg.checkLocation(at)
	}
	u.User = nil // it is the server's, and nothing to decide by
	allow := false
	at.getsCredentials, err = callUser("Config.Locations", func() (sendCredentials bool, _ error) {
		allow, sendCredentials = cfg.Locations(u)
		return sendCredentials, nil
	})
	switch {
	case err != nil:
		return locationAddr{}, err
	case !allow:
		return locationAddr{}, errors.New("Config.Locations does not allow the location")
	}
	return at, nil
}

// checkLocation is nil for a location that may be asked. A server could make
// us show our credentials to anybody on the way, or reach what only this
// machine can: its sockets, loopback services and link-local ones.
func (cfg *Config) checkLocation(at locationAddr) error {
	switch {
	case cfg.TLS != nil && !at.secure:
		return errors.New("the location is not encrypted but the connection is")
	case at.network == "unix" && cfg.Network != "unix":
		return errors.New("the location is a socket of this machine and the server is not; Config.Locations could allow it")
	case !at.sameHost && isLocal(hostOf(at.addr)):
		return errLocalLocation
	default:
		return nil
	}
}

// errLocalLocation refuses what only this machine can reach.
var errLocalLocation = errors.New("the location is a loopback or link-local address and the server is not; Config.Locations could allow it")

// checkRemote is dialDirect's check of a location on another machine: its name
// may resolve to any address, so each address found for it is checked. A pool
// whose own server is on this machine, whatever its name, is not kept from it.
func (cfg *Config) checkRemote(addr string) error {
	if isLocal(hostOf(addr)) && !netname.IsLoopback(hostOf(cfg.Address)) && !cfg.dialTracker.reachesLoopback.Load() {
		return errLocalLocation
	}
	return nil
}

// isSameHost compares a location with the endpoint by host, not by port. A
// cluster on one host gives each member a port. All names of loopback are one
// host, and sockets of this machine belong to it.
func (cfg *Config) isSameHost(at locationAddr) bool {
	mine, theirs := hostOf(cfg.Address), hostOf(at.addr)
	switch {
	case cfg.Network == "unix":
		return at.network == "unix" || netname.IsLoopback(theirs)
	case at.network == "unix":
		return netname.IsLoopback(mine)
	default:
		return mine != "" && strings.EqualFold(mine, theirs) || netname.IsLoopback(mine) && netname.IsLoopback(theirs)
	}
}

// isOwnAddress recognises the endpoint itself in a location. The server's own
// address is one: there the session's cookies and temporary tables are at hand.
// Servers that listen on all interfaces are known to name the unspecified
// address, or no host. With the same host and another port it is another
// server.
func (cfg *Config) isOwnAddress(at locationAddr) bool {
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
	return err == nil && port == mine && (cfg.isSameHost(at) || host == "" || netname.Address(host).IsUnspecified())
}

// isOwnLocation recognises our own transport in a location. No location, and
// the reuse location, mean it by definition. What cannot be parsed is
// another's, and is refused when it is asked.
func (c *Conn) isOwnLocation(uri string) bool {
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
	return err == nil && (c.cfg().isOwnAddress(at) || c.isOwnPeer(at))
}

// isOwnPeer recognises the address that the connection's own transport leads to. Servers
// that are reached by a name or by another of its addresses may name it: Doris and StarRocks do, and
// their rows are not to be had there without the credential, which does not go to another host. It
// is not known behind a proxy or a Config.Dialer.
func (c *Conn) isOwnPeer(at locationAddr) bool {
	if at.network != "tcp" || at.secure != (c.cfg().TLS != nil) {
		return false
	}
	theirs, err := netip.ParseAddrPort(at.addr)
	if err != nil { // a name, mostly
		return false
	}
	mine, err := netip.ParseAddrPort(c.transport.peer())
	return err == nil && mine.Port() == theirs.Port() && mine.Addr().Unmap() == theirs.Addr().Unmap()
}

// parseLocation reads the schemes that Flight defines for gRPC. The port is
// required: there is no default one. Others, such as https for results in
// object stores, are not supported.
func parseLocation(u *url.URL) (locationAddr, error) {
	switch u.Scheme {
	case "grpc", "grpc+tcp", "grpc+tls":
		if u.Port() == "" {
			return locationAddr{}, errors.New("the location has no port")
		}
		return locationAddr{network: "tcp", addr: u.Host, secure: u.Scheme == "grpc+tls"}, nil
	case "grpc+unix":
		return locationAddr{network: "unix", addr: u.Path}, nil
	default:
		return locationAddr{}, fmt.Errorf("scheme %q is not supported", u.Scheme)
	}
}

// hostOf is the host of an address, empty for a path. The dot at the end of a
// fully qualified name is left out.
func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(host, ".")
}

// isLocal reports whether an address is of this machine, as that without a host
// is, or of its link.
func isLocal(host string) bool {
	ip := netname.Address(host)
	return host == "" || netname.IsLoopback(host) || ip.IsLinkLocalUnicast() || ip.IsLinkLocalMulticast() || ip.IsUnspecified()
}

// maxShownLocation bounds what a location contributes to an error.
const maxShownLocation = 120

// redactLocation is a location as errors show it: without what it may have of
// credentials, in its user part or its query. Of one without slashes that is its scheme.
func redactLocation(uri string) string {
	u, err := url.Parse(uri)
	if err != nil {
		return "(no URI)"
	}
	u.User, u.Opaque, u.RawQuery, u.Fragment = nil, "", "", ""
	text := u.String()
	if len(text) > maxShownLocation {
		text = strings.ToValidUTF8(text[:maxShownLocation], "") + "…"
	}
	return fmt.Sprintf("%q", text)
}
