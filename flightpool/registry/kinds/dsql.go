package kinds

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/reservoir/dsql"
	"github.com/flightpool/flightpool/reservoir/sqlconn"
)

// DSQL is the kind dsql. A definition's option host, or its Target, is the cluster's
// endpoint; port, region and dbname are options too, and a mapping's User is the
// database role. Whatever else a connection needs comes from base: credentials, the
// fleet's budgets, TLS. Each user of a server has a Cluster, which keeps
// nothing: a connection that the registry closes is closed, and one that comes when nobody
// waits for it any more within a second. Before base.MaxLifetime (59m) the registry replaces
// each, whatever max_lifetime says: DSQL ends sessions after an hour. An open that waits for the
// fleet's permission, or since the cluster opens too many at a time, fails with ErrExhausted
// when its time is over, and does not count against the health of the server. While others of
// the fleet are short of leases, connections are closed for them: idle ones, min_connections too, and
// those in use as they come back.
func DSQL(base dsql.Config) registry.Kind {
	return registry.Kind{Name: "dsql", SQL: sqlconn.DSQL, Validate: validateDSQL, Connector: func(r registry.ConnectParams) (driver.Connector, error) {
		cfg := base
		if err := applyParams(&cfg, r); err != nil {
			return nil, err
		}
		dial := base.Dial
		if dial == nil {
			dial = new(net.Dialer).DialContext
		}
		cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return r.CountBytes(c), nil
		}
		// The registry has the bound. That of the whole fleet has no cluster take leases in advance, from the other users.
		cfg.OnDemand, cfg.MaxSize, cfg.IdleTTL = true, cmp.Or(max(0, base.ConnLimit), maxConnections), time.Second
		c, err := dsql.NewConnector(detached(), cfg)
		if err != nil {
			return nil, err
		}
		return clusterConnector{c}, nil
	}}
}

// validateDSQL refuses what a cluster has no use for.
func validateDSQL(r registry.ConnectParams) error {
	options := registry.Options{"host": nil, "port": nil, "region": nil, "dbname": nil}
	faults := []error{options.Validate(r)}
	if r.Password != "" {
		faults = append(faults, errors.New("password: a cluster takes tokens, which the credentials make"))
	}
	if _, ok := r.Options["host"]; ok && r.Target != "" {
		faults = append(faults, errors.New("host: the target says that already: leave out one of them"))
	}
	return errjoin.Join(append(faults, applyParams(&dsql.Config{}, r))...)
}

// maxConnections is the default of ConnLimit, all that a cluster should be asked for.
const maxConnections = 9_800

// closeTimeout bounds the end of a connection.
const closeTimeout = 5 * time.Second

// detached is the context of what belongs to a connection and to no call.
func detached() context.Context { return context.Background() }

// applyParams takes over what a definition says.
func applyParams(cfg *dsql.Config, r registry.ConnectParams) error {
	if cfg.Host = r.Target; cfg.Host == "" {
		cfg.Host = r.Options["host"]
	}
	if port := r.Options["port"]; port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return fmt.Errorf("port: %q is not a port", port)
		}
		cfg.Port = int(n)
	}
	for at, value := range map[*string]string{&cfg.Region: r.Options["region"], &cfg.Database: r.Options["dbname"], &cfg.User: r.User} {
		if value != "" {
			*at = value
		}
	}
	return nil
}

// clusterConnector gives physical connections of a Cluster that keeps none. The registry
// closes it.
type clusterConnector struct{ *dsql.Connector }

var (
	_ io.Closer          = clusterConnector{}
	_ registry.Reclaimer = clusterConnector{}
)

// OnReclaim has the registry give up connections, which are on loan to it.
func (c clusterConnector) OnReclaim(f func(n int) (closing int)) (stop func()) {
	return c.Cluster().OnReclaim(f)
}

func (c clusterConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, ofCluster(err)
	}
	loan, ok := conn.(*dsql.SQLConn)
	if !ok {
		return nil, errjoin.Join(fmt.Errorf("dsql: the connection is a %T", conn), conn.Close())
	}
	cfg := c.Cluster().Config()
	return clusterConn{loan, time.Now().Add(cfg.MaxLifetime - rand.N(max(0, cfg.LifetimeJitter)+1))}, nil
}

// ofCluster is why there is no connection, by which a registry judges whether the cluster can be reached. That one user
// is refused, or has no credentials, says nothing against the cluster: else it would take from all what works. Why a caller waits that
// has come since goes before, and who has a connection on loan is told of neither, but that its time is over.
func ofCluster(err error) error {
	var empty *dsql.EmptyError
	if errors.As(err, &empty) {
		if limited := ofLimits(err, empty); limited != nil {
			return limited
		}
		if empty.Signing > 0 {
			return &notAskedError{err}
		}
	}
	var open *dsql.OpenError // of an EmptyError the last one
	switch {
	case !errors.As(err, &open):
		return err
	case open.NotAsked():
		return &notAskedError{err}
	case !open.Denied() && sqlconn.Unreachable(open):
		return err
	case empty != nil && empty.Opening > 0: // the answer was to an earlier open: the one under way shows more, or nothing
		return &notAskedError{err}
	case empty != nil || open.Denied():
		answered := &answeredError{err, empty, open}
		if sqlconn.Unreachable(open) {
			return &deniedError{answered}
		}
		return answered
	}
	return err
}

// answeredError is of a caller whose last open the cluster has answered. That the caller's time was over, by waiting
// behind it, is not in the chain: it would say that nobody has answered.
type answeredError struct {
	err   error
	empty *dsql.EmptyError // or nil
	open  *dsql.OpenError
}

func (e *answeredError) Error() string { return e.err.Error() }
func (e *answeredError) Unwrap() error { return e.open }

// Is finds dsql.ErrReservoirEmpty.
func (e *answeredError) Is(target error) bool {
	return e.empty != nil && target == dsql.ErrReservoirEmpty
}

// As finds the *dsql.EmptyError.
func (e *answeredError) As(target any) bool {
	to, ok := target.(**dsql.EmptyError)
	if ok = ok && e.empty != nil; ok {
		*to = e.empty
	}
	return ok
}

// deniedError is the refusal of one user, for which the cluster's SQLSTATE, 08006, would say that it cannot be reached.
type deniedError struct{ *answeredError }

// SQLState is that of a refused authorization.
func (*deniedError) SQLState() string { return "28000" }

// notAskedError is of an open that had no credentials.
type notAskedError struct{ err error }

func (e *notAskedError) Error() string { return e.err.Error() }
func (e *notAskedError) Unwrap() error { return e.err }

// NotAsked is part of what Kind.Connector says.
func (*notAskedError) NotAsked() {}

// ofLimits is ofCluster where limits say why a caller has waited in vain, and else nil.
//
// INVARIANT: an open that has waited for its permission, or while the cluster refuses opens for its limits, says nothing
// against the cluster, though its time is over. Else a fleet at its limit would find it down, and close what works.
func ofLimits(err error, empty *dsql.EmptyError) error {
	var refusal interface{ SQLState() string }
	refused := errors.As(empty.LastOpen, &refusal) && strings.HasPrefix(refusal.SQLState(), "53")
	if !refused && empty.Leases.Waiting+empty.Limiter.Waiting == 0 && !errors.As(err, new(*lease.Error)) {
		return nil
	}
	return &limitsError{err}
}

// limitsError is the error of an open that has waited in vain. It is ErrExhausted too.
type limitsError struct{ err error }

func (e *limitsError) Error() string { return e.err.Error() }

func (e *limitsError) Unwrap() []error { return []error{registry.ErrExhausted, e.err} }

// clusterConn is a loan for as long as the registry keeps it: valid until it breaks,
// and closed where a loan's end would keep it for the next.
type clusterConn struct {
	*dsql.SQLConn
	expires time.Time
}

// ExpiresAt is before the cluster ends the session. Connections that are opened together end
// one after the other.
func (p clusterConn) ExpiresAt() time.Time { return p.expires }

// IsValid reports whether it is open.
func (p clusterConn) IsValid() bool { return !p.Conn().IsClosed() }

// ResetSession does nothing: a loan does not come back while the registry has it.
func (p clusterConn) ResetSession(context.Context) error { return nil }

// Close ends the connection and the loan.
func (p clusterConn) Close() error {
	ctx, cancel := context.WithTimeout(detached(), closeTimeout)
	defer cancel()
	return errjoin.Join(p.Conn().Close(ctx), p.SQLConn.Close())
}
