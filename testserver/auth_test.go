package testserver_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/flightpool/flightpool/testserver"
)

func locked(t *testing.T, p testserver.Profile) *testserver.Server {
	t.Helper()
	return start(t, testserver.Options{Profile: p, Users: map[string]string{"ann": "secret"}, Tokens: []string{"fixed"}})
}

// handshake shakes hands and returns the token of the header or the payload.
func (c *client) handshake(ctx context.Context, payload []byte) (header, body string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.Client.Client.Handshake(ctx)
	if err != nil {
		return "", "", err
	}
	if err := stream.Send(&flight.HandshakeRequest{Payload: payload}); err != nil {
		return "", "", err
	}
	res, err := stream.Recv()
	if err != nil {
		return "", "", err
	}
	md, err := stream.Header()
	if v := md.Get("authorization"); len(v) > 0 {
		header = v[0]
	}
	return header, string(res.GetPayload()), err
}

func bearer(ctx context.Context, token string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

func TestEveryCallNeedsAValidToken(t *testing.T) {
	srv := locked(t, testserver.Strict())
	c := dial(t, srv)
	_, err := c.query(t.Context(), "SELECT 1")
	requireCode(t, codes.Unauthenticated, err)
	_, err = c.query(bearer(t.Context(), "wrong"), "SELECT 1")
	requireCode(t, codes.Unauthenticated, err)
	require.Equal(t, 0, srv.Ledger().Snapshot().SessionsOpened)
	_, err = c.query(bearer(t.Context(), "fixed"), "SELECT 1")
	require.NoError(t, err)

	ctx, err := c.Client.Client.AuthenticateBasicToken(t.Context(), "ann", "secret") // unpadded base64
	require.NoError(t, err)
	_, err = c.query(ctx, "SELECT 1")
	require.NoError(t, err)
	_, err = c.Client.Client.AuthenticateBasicToken(t.Context(), "ann", "wrong")
	requireCode(t, codes.Unauthenticated, err)
	_, err = c.Client.Client.AuthenticateBasicToken(t.Context(), "bob", "")
	requireCode(t, codes.Unauthenticated, err)

	require.Equal(t, 2, srv.Faults().ExpireTokens())
	_, err = c.query(ctx, "SELECT 1")
	requireCode(t, codes.Unauthenticated, err)
}

func TestTheTokenComesInTheHeaderInThePayloadOrNotAtAll(t *testing.T) {
	padded := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Basic YW5uOnNlY3JldA==")
	basic, err := proto.Marshal(&flight.BasicAuth{Username: "ann", Password: "secret"})
	require.NoError(t, err)

	header, body, err := dial(t, locked(t, testserver.Strict())).handshake(padded, nil)
	require.NoError(t, err)
	require.Contains(t, header, "Bearer ")
	require.Empty(t, body)

	srv := locked(t, testserver.Profile{Handshake: testserver.TokenInPayload})
	c := dial(t, srv)
	header, body, err = c.handshake(t.Context(), basic)
	require.NoError(t, err)
	require.Empty(t, header)
	_, err = c.query(bearer(t.Context(), body), "SELECT 1")
	require.NoError(t, err)

	c = dial(t, start(t, testserver.Options{Profile: testserver.SwanLake()}))
	header, body, err = c.handshake(padded, nil)
	require.NoError(t, err)
	require.Empty(t, header+body)
	c.mustQuery("SELECT 1")
}

func TestOneBearerIsOneSessionHoweverManyConnections(t *testing.T) {
	srv := start(t, testserver.Options{Profile: testserver.GizmoSQL()})
	one, two := dial(t, srv), dial(t, srv)
	_, err := one.query(t.Context(), "SELECT 1")
	requireCode(t, codes.Unauthenticated, err)
	mine, err := one.Client.Client.AuthenticateBasicToken(t.Context(), "u", "p")
	require.NoError(t, err)
	other, err := one.Client.Client.AuthenticateBasicToken(t.Context(), "u", "p")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(mine)
	defer cancel()
	_, err = one.ExecuteUpdate(ctx, makeMine)
	require.NoError(t, err)
	require.True(t, sees(mine, t, two))
	require.False(t, sees(other, t, one))
}

func TestTheHandshakeCanBeSlow(t *testing.T) {
	bubble(t, testserver.GizmoSQL(), func(t *testing.T, srv *testserver.Server) {
		srv.Faults().Set(testserver.Fault{On: testserver.OnHandshake, Do: testserver.Delay(time.Minute)})
		c := dial(t, srv)
		began := time.Now()
		_, err := c.Client.Client.AuthenticateBasicToken(t.Context(), "u", "p")
		require.NoError(t, err)
		require.Equal(t, time.Minute, time.Since(began))
	})
}

func TestTLSAndUnixSockets(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	require.NoError(t, err)
	cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(cert)

	srv := start(t, testserver.Options{TLS: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}})
	require.Equal(t, "grpc+tls://"+srv.Addr(), srv.URI())
	c := dial(t, srv, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots})))
	c.mustQuery("SELECT 1")
	srv.Faults().FreezeConns() // Close must not wait to say goodbye

	path := filepath.Join(t.TempDir(), "s")
	srv = start(t, testserver.Options{Listen: "unix:" + path})
	require.Equal(t, "grpc+unix://"+path, srv.URI())
	dial(t, srv).mustQuery("SELECT 1")
}

func TestHealthAnswersWithoutASession(t *testing.T) {
	srv := start(t, testserver.Options{})
	cc, err := grpc.NewClient("passthrough:///"+srv.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { require.NoError(t, cc.Close()) }()
	res, err := grpc_health_v1.NewHealthClient(cc).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "arrow.flight.protocol.FlightService"})
	require.NoError(t, err)
	require.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, res.Status)
	require.Equal(t, 0, srv.Ledger().Snapshot().SessionsOpened)
}

func TestInvalidOptionsAreAllReported(t *testing.T) {
	_, err := testserver.Start(testserver.Options{Profile: testserver.Profile{SessionTTL: -1, MaxSessions: -1, Endpoints: -1, SessionKey: 99}})
	for _, field := range []string{"SessionTTL", "MaxSessions", "Endpoints", "SessionKey"} {
		require.ErrorContains(t, err, "Profile."+field)
	}
	srv := start(t, testserver.Options{})
	_, err = testserver.Start(testserver.Options{Listen: srv.Addr()})
	require.ErrorIs(t, err, testserver.ErrListen)
}
