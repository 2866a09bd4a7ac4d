package dsql

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir/reservoirtest"
	"github.com/flightpool/flightpool/testserver/dsqlgate"
)

func TestTheTargetPassesTheSuite(t *testing.T) {
	key := dsqlgate.Credential{AccessKeyID: "AKIDTEST", SecretAccessKey: "secret"}
	g, err := dsqlgate.Start(t.Context(), dsqlgate.Options{Upstream: Postgres.DSN(), Credentials: []dsqlgate.Credential{key}})
	require.NoError(t, err)
	defer func() { require.NoError(t, g.Close()) }()
	cfg, err := Config{
		Host: g.Host(), TLS: g.ClientTLS(), Dial: g.Dial, CloseTimeout: time.Second,
		Credentials: credentials.NewStaticCredentialsProvider(key.AccessKeyID, key.SecretAccessKey, ""),
	}.resolve(func(string) string { return "" })
	require.NoError(t, err)
	login, err := loginConfig(cfg)
	require.NoError(t, err)
	d := &dialer{cfg: cfg, login: login, signer: tokenSigner{cfg.Host, cfg.Region, cfg.User, cfg.TokenLifetime, cfg.Credentials}}
	ctx := t.Context()
	reservoirtest.Exercise(t, reservoirtest.Target[*physical]{
		Open:  d.open,
		Close: func(p *physical) error { return p.close(ctx, cfg.CloseTimeout) },
		Check: check,
		Break: (*physical).abort,
		Live:  func() int { return g.Stats().Live },
	})
}
