package flightconn

import (
	"crypto/tls"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Where a location is decides whether it is the session's own server, whether
// rows are fetched there, and whether credentials go there.
func TestWhereALocationLeads(t *testing.T) {
	const own, sameHost, other, refused = "own", "same host", "other", "refused"
	encrypted := &tls.Config{MinVersion: tls.VersionTLS12}
	for _, c := range []struct {
		network, address string
		tls              *tls.Config
		location, want   string
	}{
		{"tcp", "server:1", nil, "grpc://server:1", own},
		{"tcp", "server:1", nil, "grpc+tcp://SERVER.:1", own},
		{"tcp", "server:1", nil, "grpc://0.0.0.0:1", own},
		{"tcp", "server:1", nil, "grpc://[::]:1", own},
		{"tcp", "server:1", nil, "grpc://:1", own},
		{"tcp", "server:1", nil, "grpc://server:2", sameHost},
		{"tcp", "server:1", nil, "grpc+tls://server:1", sameHost},
		{"tcp", "server:1", nil, "grpc://other:1", other},
		{"tcp", "server:1", nil, "grpc://10.0.0.1:1", other},
		{"tcp", "server:1", nil, "grpc://0.0.0.0:2", refused},
		{"tcp", "server:1", nil, "grpc://[::]:2", refused},
		{"tcp", "server:1", nil, "grpc://:2", refused},
		{"tcp", "server:1", nil, "grpc://127.0.0.1:1", refused},
		{"tcp", "server:1", nil, "grpc://169.254.1.1:1", refused},
		{"tcp", "server:1", nil, "grpc://224.0.0.1:1", refused},
		{"tcp", "server:1", nil, "grpc://[ff02::1]:1", refused},
		{"tcp", "server:1", nil, "grpc+unix:///server", refused},
		{"tcp", "server:1", nil, "grpc://server", refused},
		{"tcp", "server:1", nil, "http://server:1", refused},
		{"tcp", "server:1", nil, "grpc://%zz", refused},
		{"tcp", "server:1", encrypted, "grpc+tls://server:1", own},
		{"tcp", "server:1", encrypted, "grpc://server:1", refused},
		{"tcp", "localhost:1", nil, "grpc://127.0.0.1:1", own},
		{"tcp", "localhost:1", nil, "grpc://[::1]:2", sameHost},
		{"tcp", "localhost:1", nil, "grpc://other:1", other},
		{"tcp", "a-dialer-knows", nil, "grpc://:1", refused},
		{"tcp", "a-dialer-knows", nil, "grpc://other:1", other},
		{"unix", "/server", nil, "grpc+unix:///server", own},
		{"unix", "/server", nil, "grpc+unix:///other", sameHost},
		{"unix", "/server", nil, "grpc://localhost:1", sameHost},
		{"unix", "/server", nil, "grpc://other:1", other},
	} {
		cfg := Config{Network: c.network, Address: c.address, TLS: c.tls, dialTracker: &dialTracker{}}
		conn := &Conn{endpoint: &Endpoint{cfg: cfg}, transport: &transport{}}
		require.Equal(t, c.want == own, conn.isOwnLocation(c.location), "%+v", c)
		at, err := cfg.resolveLocation(c.location)
		switch c.want {
		case refused:
			require.Error(t, err, "%+v", c)
		case sameHost:
			require.NoError(t, err, "%+v", c)
			require.True(t, at.sameHost && at.getsCredentials && !at.mustBeRemote, "%+v", c)
		case other:
			require.NoError(t, err, "%+v", c)
			require.True(t, !at.sameHost && !at.getsCredentials && at.mustBeRemote, "%+v", c)
		}
	}
}

// A server that is reached by a name may call itself by its address.
func TestTheAddressThatTheTransportLeadsToIsTheConnectionsOwn(t *testing.T) {
	encrypted := &tls.Config{MinVersion: tls.VersionTLS12}
	for _, c := range []struct {
		peer     string
		tls      *tls.Config
		location string
		own      bool
	}{
		{"10.0.0.1:1", nil, "grpc://10.0.0.1:1", true},
		{"10.0.0.1:1", nil, "grpc+tcp://[::ffff:10.0.0.1]:1", true},
		{"[2001:db8::1]:1", nil, "grpc://[2001:db8:0::1]:1", true},
		{"10.0.0.1:1", encrypted, "grpc+tls://10.0.0.1:1", true},
		{"10.0.0.1:1", nil, "grpc://10.0.0.1:2", false},
		{"10.0.0.1:1", nil, "grpc://10.0.0.2:1", false},
		{"10.0.0.1:1", nil, "grpc://other:1", false},
		{"10.0.0.1:1", nil, "grpc+tls://10.0.0.1:1", false},
		{"10.0.0.1:1", encrypted, "grpc://10.0.0.1:1", false},
		{"", nil, "grpc://10.0.0.1:1", false},
	} {
		conn := &Conn{endpoint: &Endpoint{cfg: Config{Network: "tcp", Address: "server:1", TLS: c.tls}}, transport: &transport{}}
		conn.transport.mu.peer = c.peer
		require.Equal(t, c.own, conn.isOwnLocation(c.location), "%+v", c)
	}
}

// A name that leads to this machine is not dialled, unless the server is here.
func TestWhetherAnAddressOfThisMachineIsDialled(t *testing.T) {
	for _, c := range []struct {
		server string
		local  bool // its transport leads to this machine
		addr   string
		ok     bool
	}{
		{"server:1", false, "127.0.0.1:5", false},
		{"server:1", false, "[fe80::1%eth0]:5", false},
		{"server:1", false, "10.0.0.1:5", true},
		{"server:1", true, "127.0.0.1:5", true},
		{"localhost:1", false, "127.0.0.1:5", true},
	} {
		cfg := Config{Network: "tcp", Address: c.server, dialTracker: &dialTracker{}}
		cfg.dialTracker.reachesLoopback.Store(c.local)
		require.Equal(t, c.ok, cfg.checkRemote(c.addr) == nil, "%+v", c)
	}
}

func TestLocationsDecidesByTheLocationWithoutItsUser(t *testing.T) {
	for _, allow := range []bool{false, true} {
		cfg := Config{Network: "tcp", Address: here, Locations: func(u *url.URL) (bool, bool) {
			require.Equal(t, "grpc://other:1/x", u.String())
			return allow, true
		}}
		at, err := cfg.resolveLocation("grpc://somebody:secret@other:1/x")
		require.Equal(t, allow, err == nil)
		require.Equal(t, allow, at.getsCredentials)
	}
}

func TestALongLocationIsShownInPart(t *testing.T) {
	short := "grpc://other:1/" + strings.Repeat("x", maxShownLocation-15)
	require.Equal(t, `"`+short+`"`, redactLocation(short))
	require.Equal(t, `"`+short+`…"`, redactLocation(short+"x"))
	require.NotContains(t, redactLocation("grpc://somebody:secret@other:1/?secret#secret"), "secret")
	require.Equal(t, "(no URI)", redactLocation("grpc://%zz"))
}
