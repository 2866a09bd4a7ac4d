package dsql

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/dsql/auth"
	"github.com/aws/smithy-go/logging"
	"github.com/jackc/pgx/v5"

	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/ctxerr"
)

// neutralDSN gives every key that pgx would else take from the environment. Hosts,
// user, password and TLS are set afterwards.
const neutralDSN = "host=localhost port=5432 user=x password=x database=x sslmode=disable sslnegotiation=postgres sslcertmode=allow " +
	"sslsni=1 sslrootcert='' sslcert='' sslkey='' sslpassword='' passfile='' connect_timeout=0 application_name=x target_session_attrs=any timezone=UTC options='' " +
	"min_protocol_version=3.0 max_protocol_version=3.0 channel_binding=prefer require_auth=''"

// loginConfig is what every open of a Cluster starts from. Only the password
// and the dial are set for each.
func loginConfig(c Config) (*pgx.ConnConfig, error) {
	base, err := neutralConfig()
	if err != nil {
		return nil, fmt.Errorf("dsql: PostgreSQL variables of the environment: %w", err)
	}
	base.RuntimeParams = map[string]string{"application_name": "flightpool"}
	for name, value := range c.RuntimeParams {
		base.RuntimeParams[name] = value
	}
	base.BuildContextWatcherHandler = nil // a canceller, unless the user has another
	if c.Pgx != nil {
		c.Pgx(base)
	}
	base.Host, base.Port = c.Host, uint16(c.Port)
	base.User, base.Password, base.Database = c.User, "", c.Database
	base.Fallbacks = nil // no second address, and none without TLS
	base.SSLNegotiation = "postgres"
	base.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if c.TLS != nil {
		base.TLSConfig = c.TLS.Clone()
		base.TLSConfig.MinVersion = max(base.TLSConfig.MinVersion, tls.VersionTLS12)
	}
	base.TLSConfig.ServerName = c.Host
	base.TLSConfig.NextProtos = nil
	if c.DirectTLS {
		base.SSLNegotiation = "direct"
		base.TLSConfig.NextProtos = []string{"postgresql"}
	}
	// The dialer tries the addresses of a name itself. Were they given to pgx,
	// an open that the cluster refused would be repeated for each.
	base.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	return base, nil
}

// neutralConfig makes a configuration that knows nothing of the environment.
// pgx makes none without looking at it.
func neutralConfig() (*pgx.ConnConfig, error) {
	if os.Getenv("PGSERVICE") == "" {
		return pgx.ParseConfig(neutralDSN)
	}
	// A service cannot be unset, only replaced by an empty one.
	file, err := os.CreateTemp("", "pgservice")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(file.Name()) }() // an empty file that stays does no harm
	_, err = file.WriteString("[none]\n")
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return nil, err
	}
	quoted := strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(file.Name())
	return pgx.ParseConfig(neutralDSN + " service=none servicefile='" + quoted + "'")
}

// address is where to dial.
func address(c Config) string { return net.JoinHostPort(c.Host, fmt.Sprint(c.Port)) }

// awsConfig resolves region and credentials, once for a Cluster.
func awsConfig(ctx context.Context, c Config) (aws.Config, error) {
	log := cmp.Or(c.Logger, slog.Default())
	options := []func(*config.LoadOptions) error{
		config.WithRegion(c.Region),
		config.WithLogger(logging.LoggerFunc(func(kind logging.Classification, format string, args ...any) {
			log.Debug("AWS SDK: "+fmt.Sprintf(format, args...), "kind", kind)
		})),
	}
	if c.Credentials != nil {
		options = append(options, config.WithCredentialsProvider(guardCredentials(c.Credentials)))
	}
	loaded, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return aws.Config{}, fmt.Errorf("dsql: Credentials: %w", err)
	}
	return loaded, nil
}

// A tokenSigner makes the passwords of opens. There is no cache: signing costs less
// than a lock is worth, and the SDK may shorten a token to the life of the credentials.
type tokenSigner struct {
	host, region, user string
	lifetime           time.Duration
	credentials        aws.CredentialsProvider
}

// sign makes a token for one open.
func (t tokenSigner) sign(ctx context.Context) (string, error) {
	if t.credentials == nil {
		return "", errors.New("there are none")
	}
	credentials, err := t.retrieve(ctx)
	if err != nil {
		return "", err
	}
	if expireWithin(credentials, time.Second) { // a token lasts for whole seconds
		return "", fmt.Errorf("those of access key %q have expired, or are about to: at %v", credentials.AccessKeyID, credentials.Expires)
	}
	// What is signed with must be what was looked at.
	fixed := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return credentials, nil })
	generate := auth.GenerateDbConnectAuthToken
	if t.user == "admin" {
		generate = auth.GenerateDBConnectAdminAuthToken
	}
	return generate(ctx, t.host, t.region, fixed, func(o *auth.TokenOptions) { o.ExpiresIn = t.lifetime })
}

// renewBefore is how long before their end credentials are asked for anew: a token ends with
// them, and an open takes its time.
const renewBefore = 5 * time.Second

// expireWithin says whether credentials have so little time left.
func expireWithin(c aws.Credentials, d time.Duration) bool {
	return c.CanExpire && time.Until(c.Expires) < d
}

// retrieve gives the cache's credentials, or new ones in the last moments of those.
func (t tokenSigner) retrieve(ctx context.Context) (aws.Credentials, error) {
	credentials, err := t.credentials.Retrieve(ctx)
	cache, cached := t.credentials.(*aws.CredentialsCache)
	if err != nil || !cached || !expireWithin(credentials, renewBefore) {
		return credentials, err
	}
	cache.Invalidate()
	return cache.Retrieve(ctx)
}

// credentialsLimit is how long Config.Credentials may take for one answer. The
// SDK's cache asks once for all opens, without the deadline of any.
const credentialsLimit = time.Minute

// guardedCredentials are the user's, asked by the SDK's cache on a goroutine of its
// own: there a panic would end the process, and a call that does not return would
// be the last.
type guardedCredentials struct{ aws.CredentialsProvider }

// guardCredentials guards what the SDK will cache. Of what is cached already, the
// cache is the user's.
func guardCredentials(p aws.CredentialsProvider) aws.CredentialsProvider {
	if _, cached := p.(*aws.CredentialsCache); cached || aws.IsCredentialsProvider(p, (*aws.AnonymousCredentials)(nil)) {
		return p
	}
	return guardedCredentials{p}
}

func (g guardedCredentials) Retrieve(ctx context.Context) (aws.Credentials, error) {
	ctx, cancel := context.WithTimeout(ctx, credentialsLimit)
	defer cancel()
	a, inTime := callback.Within(ctx, returnMargin, func() (aws.Credentials, error) { return g.CredentialsProvider.Retrieve(ctx) }, nil, nil)
	if !inTime {
		return a.Value, ctxerr.Of(ctx)
	}
	return a.Value, a.Failure("dsql: Credentials")
}

// IsCredentialsProvider says whether the user's are of the type of target.
func (g guardedCredentials) IsCredentialsProvider(target aws.CredentialsProvider) bool {
	return aws.IsCredentialsProvider(g.CredentialsProvider, target)
}

// HandleFailToRefresh is what the cache does when there are no new ones.
func (g guardedCredentials) HandleFailToRefresh(ctx context.Context, last aws.Credentials, err error) (aws.Credentials, error) {
	if s, ok := g.CredentialsProvider.(aws.HandleFailRefreshCredentialsCacheStrategy); ok {
		return s.HandleFailToRefresh(ctx, last, err)
	}
	return aws.Credentials{}, err
}

// AdjustExpiresBy is what the cache does with the expiry of new ones.
func (g guardedCredentials) AdjustExpiresBy(c aws.Credentials, by time.Duration) (aws.Credentials, error) {
	if s, ok := g.CredentialsProvider.(aws.AdjustExpiresByCredentialsCacheStrategy); ok {
		return s.AdjustExpiresBy(c, by)
	}
	if c.CanExpire {
		c.Expires = c.Expires.Add(by)
	}
	return c, nil
}
