package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
)

// An authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
	file string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	of := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, of, of, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	a := &authority{cert, key, x509.NewCertPool(), filepath.Join(t.TempDir(), "ca.pem")}
	a.pool.AddCert(cert)
	writePEM(t, a.file, "CERTIFICATE", der)
	return a
}

// issue makes a certificate for 127.0.0.1, and the files of it and of its key.
func (a *authority) issue(t *testing.T, name string) (_ tls.Certificate, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	of := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, of, a.cert, &key.PublicKey, a.key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writePEM(t, certFile, "CERTIFICATE", der)
	writePEM(t, keyFile, "PRIVATE KEY", private)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, certFile, keyFile
}

func writePEM(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

// The shell, the doctor and the bench connect in the same way, and tell the same of what fails.
func TestWhatIsWrongWithTLSIsTold(t *testing.T) {
	known, stranger := newAuthority(t), newAuthority(t)
	cert, _, _ := known.issue(t, "server")
	_, mine, key := known.issue(t, "client")
	plain := serve(t, testserver.Options{})
	open := serve(t, testserver.Options{TLS: &tls.Config{Certificates: []tls.Certificate{cert}}})
	closed := serve(t, testserver.Options{TLS: &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: known.pool}})
	for name, c := range map[string]struct {
		url  string
		args []string
		code int
		says string
	}{
		"known authority":               {"grpc+tls://" + open.Addr(), []string{"--tls-ca", known.file}, exitOK, ""},
		"unknown authority":             {"grpc+tls://" + open.Addr(), nil, exitConnect, "x509: certificate signed by unknown authority"},
		"another's authority":           {"grpc+tls://" + open.Addr(), []string{"--tls-ca", stranger.file}, exitConnect, "x509: certificate signed by unknown authority"},
		"plain text to TLS":             {"grpc://" + open.Addr(), nil, exitConnect, "plain text to a TLS port? use grpc+tls://"},
		"TLS to plain text":             {"grpc+tls://" + plain.Addr(), nil, exitConnect, "TLS to a plain text port? use grpc://"},
		"own certificate":               {"grpc+tls://" + closed.Addr(), []string{"--tls-ca", known.file, "--tls-cert", mine, "--tls-key", key}, exitOK, ""},
		"own certificate is missing":    {"grpc+tls://" + closed.Addr(), []string{"--tls-ca", known.file}, exitConnect, "certificate"},
		"key of no certificate":         {"grpc+tls://" + closed.Addr(), []string{"--tls-key", key}, exitUsage, "--tls-key: name its certificate by --tls-cert"},
		"certificate without its key":   {"grpc+tls://" + closed.Addr(), []string{"--tls-cert", mine}, exitUsage, "--tls-cert: "},
		"certificate that is not there": {"grpc+tls://" + closed.Addr(), []string{"--tls-cert", mine + "x", "--tls-key", key}, exitUsage, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, of := range [][]string{{"-e", "SELECT 1", c.url}, {"doctor", "--readonly", c.url}, {"bench", "-c", "1", "-d", "10ms", c.url}} {
				r := flightpoolOf(t, "", nil, append(of, c.args...)...)
				require.Equal(t, c.code, r.code, r.err)
				require.Contains(t, r.err, c.says)
				if c.code == exitOK && of[0] == "doctor" {
					require.Regexp(t, `(?m)^TLS +yes +TLS 1.3, certificate until `, r.out)
				}
			}
		})
	}
}

// silent accepts connections and says nothing.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
		}
	}()
	return l.Addr().String()
}

func TestConnectTimeoutIsWhatIsWaited(t *testing.T) {
	at := silent(t)
	for _, of := range [][]string{{"-e", "SELECT 1"}, {"doctor"}, {"bench"}} {
		for _, c := range []struct{ url, flag, waits string }{
			{"grpc://" + at, "300ms", "300ms"}, {"grpc://" + at + "/?dial_timeout=200ms", "1h", "200ms"}, {"grpc+tls://" + at, "300ms", "300ms"},
		} {
			r := flightpoolOf(t, "", nil, append(of, c.url, "--connect-timeout", c.flag)...)
			require.Equal(t, exitConnect, r.code, r.err)
			require.True(t, strings.HasPrefix(r.err, "flightpool: "+at+": dial: no answer within --connect-timeout "+c.waits), "%s: %s", of[0], r.err)
		}
	}
}

// A server that comes as far as a step and says no more is waited for as long as one that says nothing.
func TestAServerThatFallsSilentIsNotWaitedFor(t *testing.T) {
	known := newAuthority(t)
	cert, _, _ := known.issue(t, "server")
	srv := serve(t, testserver.Options{Users: map[string]string{"app": "secret"}, TLS: &tls.Config{Certificates: []tls.Certificate{cert}}})
	for step, on := range map[string]testserver.Point{
		"auth": testserver.OnHandshake, "probe": testserver.OnGetFlightInfo, "fetch": testserver.OnDoGet,
	} {
		set := srv.Faults().Set(testserver.Fault{On: on, Do: testserver.Hang()})
		for _, of := range [][]string{{"-e", "SELECT 1"}, {"doctor"}, {"bench", "-c", "1"}} {
			r := flightpoolOf(t, "", nil, append(of, "grpc+tls://app:secret@"+srv.Addr(), "--tls-ca", known.file, "--connect-timeout", "300ms")...)
			require.Equal(t, exitConnect, r.code, r.err)
			require.True(t, strings.HasPrefix(r.err, "flightpool: "+srv.Addr()+": "+step+": no answer within --connect-timeout 300ms"), "%s, %s: %s", of[0], on, r.err)
		}
		set.Clear()
	}
}

// Who types SQL gets no advice that is for Go programs.
func TestErrorsNameNoCallsOfGo(t *testing.T) {
	srv := serve(t, testserver.Options{})
	folder := t.TempDir()
	const alone = "is not taken: BEGIN, COMMIT and ROLLBACK alone are, at the prompt and in scripts"
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"-e", "FROBNICATE 1"}, exitFailed, `say so by \route or --route: query if it has rows, update if not`},
		{[]string{"bench", "-q", "FROBNICATE 1"}, exitFailed, `--route: query if it has rows`},
		{[]string{"bench", "-q", "SELECT 1", "-q", "COMMIT"}, exitFailed, alone},
		{[]string{"-e", "START TRANSACTION READ ONLY"}, exitFailed, alone},
		{[]string{"-e", "COMMIT"}, exitFailed, "flightpool: no transaction is open"},
		{[]string{"-e", "BEGIN; BEGIN"}, exitFailed, "flightpool: a transaction is open already"},
		{[]string{"-e", "SAVEPOINT a"}, exitFailed, "flightpool: no transaction is open"},
		{[]string{"-e", "SELECT 1", "--header", "a b=c"}, exitUsage, `flightpool: Headers: "a b" is no header name`},
		{[]string{"-f", folder}, exitUsage, folder + " is a folder, not a file of statements"},
		{[]string{"bench", "-f", folder}, exitUsage, folder + " is a folder, not a file of statements"},
		{[]string{"bench", "-f", folder + "/x"}, exitUsage, folder + "/x: no such file or directory"},
	} {
		r := flightpoolOf(t, "", nil, append(c.args, srv.URI())...)
		require.Equal(t, c.code, r.code, r.err)
		require.Contains(t, r.err, c.says, c.args)
		require.NotRegexp(t, `BeginTransaction|QueryOptions|ParseTarget|\bNew\b|SessionHandle|open /`, r.err)
		require.NotContains(t, r.out, "calls in", "no figures of what did not run")
	}
	r := flightpoolOf(t, "", nil, "-e", "SELECT 1", srv.Addr())
	require.Contains(t, r.err, "flightpool: target: has no scheme; did you mean grpc://")
}
