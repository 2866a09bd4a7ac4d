package dsql

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
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
