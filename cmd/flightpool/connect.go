package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/cmd/flightpool/internal/output"
	"github.com/flightpool/flightpool/flightpool"
)

// What names the server and its credentials beside the command line.
const (
	urlVariable      = "FLIGHTPOOL_URL"
	passwordVariable = "FLIGHTPOOL_PASSWORD"
	tokenVariable    = "FLIGHTPOOL_TOKEN"
)

// A target is what the command line says of the server. No secret of it is printed.
type target struct {
	url           string
	user          string
	basicHeader   bool
	tokenFile     string
	tlsCA         string
	tlsCert       string
	tlsKey        string
	headers       []string
	sessionHeader string
	timeout       time.Duration
}

func (t *target) bind(c *cobra.Command) {
	flags := c.PersistentFlags()
	flags.StringVarP(&t.user, "user", "u", "", "user name; the password is that of the URL, of FLIGHTPOOL_PASSWORD, or asked for")
	flags.BoolVar(&t.basicHeader, "basic-header", false, "send user and password with every call instead of a handshake")
	flags.StringVar(&t.tokenFile, "token-file", "", "file with a bearer token (or FLIGHTPOOL_TOKEN)")
	flags.StringVar(&t.tlsCA, "tls-ca", "", "file with the certificates (PEM) by which the server is trusted")
	flags.StringVar(&t.tlsCert, "tls-cert", "", "file with your certificate (PEM), for servers that want one")
	flags.StringVar(&t.tlsKey, "tls-key", "", "file with its key (PEM); without it, the key is in the file of --tls-cert")
	flags.StringArrayVar(&t.headers, "header", nil, "header of every call, as name=value; may be repeated")
	flags.StringVar(&t.sessionHeader, "session-header", "", "header that names a session, for servers that want one (ClickHouse)")
	flags.DurationVar(&t.timeout, "connect-timeout", 10*time.Second, "how long to wait for a connection, if the URL has no dial_timeout")
}

// config is the target without secrets, and what the pool is to be made with.
func (a *app) config(ctx context.Context, args []string) (string, flightpool.Config, error) {
	t := &a.target
	t.url = a.getenv(urlVariable)
	if len(args) > 0 {
		t.url = args[0]
	}
	if t.url == "" {
		return "", flightpool.Config{}, usageError("name the server, as in flightpool grpc://localhost:31337 (or by %s)", urlVariable)
	}
	clean, cfg, err := flightpool.ParseTarget(t.url)
	if err == nil {
		err = errors.Join(a.credentials(ctx, &cfg), t.trust(&cfg), t.identify(&cfg), t.addHeaders(&cfg))
	}
	var known *failure
	if err != nil && !errors.As(err, &known) {
		err = &failure{exitUsage, err}
	}
	if err != nil {
		return "", cfg, err
	}
	if t.sessionHeader != "" {
		cfg.SessionHeader = t.sessionHeader
	}
	if cfg.DialTimeout == 0 {
		cfg.DialTimeout = t.timeout
	}
	return clean, cfg, nil
}

// credentials adds who the user is to cfg.
func (a *app) credentials(ctx context.Context, cfg *flightpool.Config) error {
	t := &a.target
	token := a.getenv(tokenVariable)
	named, ofURL := urlUser(t.url)
	its := ofURL // password
	if named != "" && ofURL == "" {
		its = a.getenv(passwordVariable)
	}
	switch {
	case t.tokenFile != "" && t.user != "":
		return errors.New("--user and --token-file exclude each other")
	case t.tokenFile != "" && t.basicHeader:
		return errors.New("--basic-header and --token-file exclude each other")
	case t.tokenFile != "":
		if _, err := os.Stat(t.tokenFile); err != nil {
			return fmt.Errorf("--token-file: %w", err)
		}
		// The file is read again when the server has refused the token.
		cfg.Auth = flightpool.TokenAuth(func(context.Context) (string, time.Time, error) {
			text, err := os.ReadFile(t.tokenFile)
			return strings.TrimSpace(string(text)), time.Time{}, err
		})
	case strings.Contains(t.user, ":"): // what is behind may be a password
		return fmt.Errorf("--user takes the name alone, without a colon: the password is that of %s, or asked for", passwordVariable)
	case t.user != "":
		password, err := a.password(ctx)
		if err != nil {
			return err
		}
		if cfg.Auth = flightpool.BasicAuth(t.user, password); t.basicHeader {
			cfg.Auth = flightpool.BasicHeader(t.user, password)
		}
	case t.basicHeader:
		if named == "" {
			return errors.New("--basic-header: name the user, by --user or in the URL")
		}
		cfg.Auth = flightpool.BasicHeader(named, its)
	case its != ofURL: // there is one in the environment
		cfg.Auth = flightpool.BasicAuth(named, its)
	case token != "" && cfg.Auth.String() == (flightpool.Auth{}).String(): // the URL names nobody
		cfg.Auth = flightpool.BearerAuth(token)
	}
	return nil
}

// urlUser is the user that a URL names, which ParseTarget has taken, and the password.
func urlUser(target string) (user, password string) {
	u, err := url.Parse(target)
	if err != nil || u.User == nil {
		return "", ""
	}
	password, _ = u.User.Password()
	return u.User.Username(), password
}

// password is that of the environment, or asked for.
func (a *app) password(ctx context.Context) (string, error) {
	if password := a.getenv(passwordVariable); password != "" {
		return password, nil
	}
	in, ok := a.in.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return "", fmt.Errorf("no password for %s: set %s, since there is no terminal to ask at", a.target.user, passwordVariable)
	}
	// The prompt comes once nothing is echoed any more.
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return "", err
	}
	defer func() { _ = term.Restore(int(in.Fd()), before) }() // the terminal is gone if that fails
	asked := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{in, a.err}, "")
	given := make(chan answer, 1)
	go func() {
		text, err := asked.ReadPassword("password of " + output.Printable(a.target.user) + ": ")
		given <- answer{text, err}
	}()
	select {
	case got := <-given:
		if errors.Is(got.err, io.EOF) { // Ctrl-C and Ctrl-D
			return "", &failure{exitInterrupted, errInterrupted}
		}
		return got.text, got.err
	case <-ctx.Done(): // a signal: nothing is read any more
		return "", interruption(ctx)
	}
}

// trust adds the certificates of --tls-ca to cfg.
func (t *target) trust(cfg *flightpool.Config) error {
	if t.tlsCA == "" {
		return nil
	}
	pem, err := os.ReadFile(t.tlsCA)
	if err != nil {
		return fmt.Errorf("--tls-ca: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return fmt.Errorf("--tls-ca: %s has no certificate in PEM", t.tlsCA)
	}
	tlsOf(cfg).RootCAs = roots
	return nil
}

// identify adds the certificate of --tls-cert to cfg.
func (t *target) identify(cfg *flightpool.Config) error {
	switch {
	case t.tlsCert == "" && t.tlsKey != "":
		return errors.New("--tls-key: name its certificate by --tls-cert")
	case t.tlsCert == "":
		return nil
	}
	mine, err := tls.LoadX509KeyPair(t.tlsCert, cmp.Or(t.tlsKey, t.tlsCert))
	if err != nil {
		return fmt.Errorf("--tls-cert: %w", err)
	}
	tlsOf(cfg).Certificates = []tls.Certificate{mine}
	return nil
}

// tlsOf is the TLS of cfg, to be added to.
func tlsOf(cfg *flightpool.Config) *tls.Config {
	if cfg.TLS == nil {
		cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return cfg.TLS
}

func (t *target) addHeaders(cfg *flightpool.Config) error {
	for i, header := range t.headers {
		name, value, ok := strings.Cut(header, "=")
		if !ok {
			return fmt.Errorf("header %d is not name=value", i+1) // what it is may be a secret
		}
		if cfg.Headers == nil {
			cfg.Headers = metadata.MD{}
		}
		cfg.Headers.Append(strings.TrimSpace(name), value)
	}
	return nil
}

// open makes the pool.
func (a *app) open(ctx context.Context, target string, cfg flightpool.Config) (*flightpool.FlightSQLPool, error) {
	ctx, stop := a.interruptible(ctx)
	defer stop()
	pool, err := flightpool.New(ctx, target, cfg) // DialTimeout bounds it
	var wrong *flightpool.Error
	switch {
	case err == nil:
		return pool, nil
	case ctx.Err() != nil:
		return nil, interruption(ctx)
	case errors.As(err, &wrong) && wrong.Fault == flightpool.FaultUsage:
		return nil, &failure{exitUsage, err}
	}
	return nil, &failure{exitConnect, err}
}
