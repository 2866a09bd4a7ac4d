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
	came := time.Now()
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, ofCluster(err, came)
	}
	loan, ok := conn.(*dsql.SQLConn)
	if !ok {
		return nil, errjoin.Join(fmt.Errorf("dsql: the connection is a %T", conn), conn.Close())
	}
	cfg := c.Cluster().Config()
	return clusterConn{loan, time.Now().Add(cfg.MaxLifetime - rand.N(max(0, cfg.LifetimeJitter)+1))}, nil
}

// ofCluster is why there is no connection for a caller who came at a time, by which a registry judges whether the cluster can be
// reached. That one user is refused, has no credentials, or has an AfterConnect that fails says nothing against the cluster: else
// it would take from all what works. An open that failed before the caller came says nothing of now. A time that is over says something
// only where the cluster has left a login unanswered for most of it.
func ofCluster(err error, came time.Time) error {
	var empty *dsql.EmptyError
	_ = errors.As(err, &empty)
	var open *dsql.OpenError // of an EmptyError the last one
	opened := errors.As(err, &open)
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case opened && !open.At.Before(came) && !open.NotAsked():
		return ofOpen(err, empty, open)
	case empty != nil && 4*empty.Unanswered >= 3*empty.Waited && errors.Is(err, context.DeadlineExceeded):
		return err
	case isLimited(err, empty):
		return &limitsError{err}
	case opened, empty != nil && errors.Is(err, context.DeadlineExceeded):
		return &notAskedError{err}
	}
	return err
}

// ofOpen is ofCluster where the cluster was asked for a connection, of which open tells.
func ofOpen(err error, empty *dsql.EmptyError, open *dsql.OpenError) error {
	unreachable := sqlconn.Unreachable(open)
	answered := &answeredError{err, empty, open}
	switch {
	case hasClass(open, "53"):
		return &limitsError{err}
	case open.LoggedIn() && errors.Is(open, context.DeadlineExceeded): // in a statement, or somewhere else
		return &notAskedError{err}
	case open.Denied() && unreachable:
		return &saidError{answered, "28000"}
	case open.LoggedIn() && unreachable:
		return &saidError{answered, "HV00N"}
	case unreachable, empty == nil:
		return err
	}
	return answered
}

// hasClass reports whether err has an SQLSTATE of a class.
func hasClass(err error, class string) bool {
	var state interface{ SQLState() string }
	return errors.As(err, &state) && strings.HasPrefix(state.SQLState(), class)
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

// saidError is what the cluster has answered, where the SQLSTATE of the chain would say that it cannot be reached: 08006 is how it
// denies a user, and an AfterConnect may fail with any.
type saidError struct {
	*answeredError
	state string
}

// SQLState is that of a refused authorization, or of SQL/MED for a connection that could not be established.
func (e *saidError) SQLState() string { return e.state }

// notAskedError is of an open that has shown nothing of the cluster.
type notAskedError struct{ err error }

func (e *notAskedError) Error() string { return e.err.Error() }
func (e *notAskedError) Unwrap() error { return e.err }

// NotAsked is part of what Kind.Connector says.
func (*notAskedError) NotAsked() {}

// isLimited reports whether limits may be why a caller has waited in vain.
//
// INVARIANT: an open that has waited for its permission, or while the cluster refuses opens for its limits, says nothing
// against the cluster, though its time is over. Else a fleet at its limit would find it down, and close what works.
func isLimited(err error, empty *dsql.EmptyError) bool {
	return errors.As(err, new(*lease.Error)) || hasClass(err, "53") ||
		empty != nil && empty.Leases.Waiting+empty.Limiter.Waiting > 0
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
