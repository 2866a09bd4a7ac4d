package dsql

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/taskgroup"
	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/reservoir"
)

// A Cluster is this process's side of one DSQL cluster: one reservoir, one
// source of tokens, one part of the fleet's budgets, shared by all pools made
// from it. All methods are safe for concurrent use.
type Cluster struct {
	cfg            Config
	res            *reservoir.Reservoir[*physical]
	budgets        *budgets
	admitByBudgets func(context.Context) (func(), error)
	quota          *quota
	breaker        openBreaker
	counters       counters
	phases         *openPhases
	log            *slog.Logger

	started          chan struct{}                               // closed when res is set
	watermark        *watermark                                  // LowWatermark
	repairs          taskgroup.Group                             // of connections that came back
	stopListening    func()                                      // ends the listening for revoked leases
	giveUpAbove      atomic.Pointer[func(n int) int]             // OnReclaim; nil: there is no pool above
	withCloseTimeout func(end func(context.Context) error) error // calls end with CloseTimeout, for callers without a context

	mu        sync.Mutex
	openConns map[*physical]struct{} // INVARIANT: those whose close has not begun
}

// NewCluster starts to open connections and does not wait for them: see
// WaitReady. It returns all faults of cfg at once. ctx bounds the call alone.
// Close ends the cluster.
func NewCluster(ctx context.Context, cfg Config) (*Cluster, error) {
	cfg, unread := cfg.regionFromProfile(ctx, os.Getenv)
	cfg, err := cfg.resolve(os.Getenv)
	if err := errjoin.Join(err, unread); err != nil {
		return nil, err
	}
	login, err := loginConfig(cfg)
	if err != nil {
		return nil, err
	}
	account, err := awsConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	fleet, err := newBudgets(ctx, cfg, account)
	if err != nil {
		return nil, err
	}
	d := &dialer{cfg: cfg, login: login, signer: tokenSigner{cfg.Host, cfg.Region, cfg.User, cfg.TokenLifetime, account.Credentials}}
	c, err := newCluster(ctx, cfg, fleet, d.open)
	if err != nil {
		return nil, err
	}
	c.phases = &d.phases
	return c, nil
}

// newCluster starts a cluster whose connections dial makes.
func newCluster(ctx context.Context, cfg Config, fleet *budgets, dial func(context.Context) (*physical, error)) (*Cluster, error) {
	ctx = context.WithoutCancel(ctx)
	c := &Cluster{
		cfg: cfg, budgets: fleet, quota: newQuota(cfg.MaxSize), log: cfg.Logger.With("cluster", cfg.Host),
		started: make(chan struct{}), stopListening: func() {},
		openConns: map[*physical]struct{}{}, phases: new(openPhases),
	}
	admit, self := lease.Admit(fleet.leases, fleet.limiter), lease.NewHolder(c.giveUp).Wanting(c.wantedPermissions)
	c.admitByBudgets = func(ctx context.Context) (func(), error) { return admit(lease.WithHolder(ctx, self)) }
	c.watermark = newWatermark(cfg.LowWatermark, func() int { return c.res.Stats().Idle })
	c.withCloseTimeout = func(end func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, cfg.CloseTimeout)
		defer cancel()
		return end(ctx)
	}
	res, err := reservoir.New(c.reservoirConfig(ctx, dial))
	if err != nil {
		return nil, errjoin.Join(err, fleet.close(ctx))
	}
	c.res = res
	close(c.started)
	if err := c.listen(); err != nil {
		return nil, errjoin.Join(err, c.withCloseTimeout(c.Close))
	}
	return c, nil
}

// reservoirConfig tells the reservoir how to open, keep and close connections.
// ctx is for what has no other.
func (c *Cluster) reservoirConfig(ctx context.Context, dial func(context.Context) (*physical, error)) reservoir.Config[*physical] {
	cfg := c.cfg
	rc := reservoir.Config[*physical]{
		Open:    func(ctx context.Context) (*physical, error) { return c.openRetrying(ctx, dial) },
		Close:   func(p *physical) error { return c.close(ctx, p) },
		Check:   check,
		Admit:   c.admitOpen,
		MinIdle: c.readyTarget(), MaxSize: cfg.MaxSize, MaxConcurrentOpens: cfg.MaxConcurrentOpens,
		AcquireTimeout: -1,                       // view.borrowWaiting applies it
		OpenRetry:      reservoir.OpenRetryNever, // openRetrying has tried again
		OpenTimeout:    cfg.OpenTimeout, CloseTimeout: 2 * cfg.CloseTimeout,
		MaxLifetime: cfg.MaxLifetime, ReplaceAfter: cfg.ReplaceAfter, LifetimeJitter: cfg.LifetimeJitter, GuardWindow: cfg.GuardWindow,
		IdleTTL: cfg.IdleTTL, LeakAfter: cfg.LeakAfter,
		CheckInterval: cfg.CheckInterval, CheckTimeout: cfg.CheckTimeout, Hooks: cfg.Hooks,
	}
	if cfg.LowWatermark < cfg.MaxSize {
		rc.Hooks = c.watermark.hooks(cfg.Hooks)
	}
	if cfg.OnReturn != nil {
		rc.Reset = c.onReturn
	}
	return rc
}

// close ends a connection. One that is still lent is cut only: its borrower,
// who alone may use it, finds out.
func (c *Cluster) close(ctx context.Context, p *physical) error {
	c.mu.Lock()
	delete(c.openConns, p)
	c.mu.Unlock()
	if !p.owner.CompareAndSwap(ownedByNone, ownedByCloser) {
		p.abort()
		return nil
	}
	defer p.abort() // also when BeforeClose ends this goroutine
	if err := c.beforeClose(ctx, p); err != nil {
		return err // it may still use p
	}
	return p.close(ctx, c.cfg.CloseTimeout)
}

// Config is a copy of the configuration, defaults filled in.
func (c *Cluster) Config() Config {
	cfg := c.cfg
	cfg.RuntimeParams = maps.Clone(cfg.RuntimeParams)
	if cfg.TLS != nil {
		cfg.TLS = cfg.TLS.Clone()
	}
	return cfg
}

// Reset closes every connection, those in use when they come back, and opens
// others. It is for what spoils all of them, a change of the network for example;
// lost connections are found without it.
func (c *Cluster) Reset() { c.res.Reset() }

// noneAvailable says that there is no open connection, idle or in use.
func (c *Cluster) noneAvailable() bool {
	s := c.res.Stats()
	return s.Idle+s.InUse == 0
}

// waitIsUseless says whether waiting for an open is useless while opens fail
// permanently. Where connections are kept ready the reservoir finds out by itself when
// that is over; elsewhere only the open of a caller does, after the pause.
func (c *Cluster) waitIsUseless() bool { return c.readyTarget() > 0 || !c.breaker.trialDue() }

// emptyError describes the present state.
func (c *Cluster) emptyError(waited time.Duration, cause error) error {
	s := c.res.Stats()
	last := s.LastOpenError
	if refusal := c.breaker.lastRefusal(); refusal != nil {
		last = refusal // of an open that has not failed for good
	}
	return &EmptyError{
		Waited: waited, Ready: s.Idle, InUse: s.InUse, Opening: s.Opening, Waiting: s.Waiting + c.quota.waiting(),
		MaxSize: c.cfg.MaxSize, Leases: c.budgets.leases.Stats(), Limiter: c.budgets.limiter.Stats(), Cause: cause, LastOpen: last,
		Signing: int(c.phases.signing.Load()), Unanswered: c.phases.longestLogin(),
	}
}

// view takes a part of the cluster for one pool.
func (c *Cluster) view(v View) (*view, error) {
	m, err := c.quota.join(v.Max, v.Reserve)
	if err != nil {
		return nil, err
	}
	return &view{cluster: c, quota: m}, nil
}

// NewPool makes a pgx pool of a part of the cluster. Closing it leaves the
// cluster as it is.
func (c *Cluster) NewPool(v View) (*Pool, error) {
	part, err := c.view(v)
	if err != nil {
		return nil, err
	}
	return &Pool{view: part, close: part.quota.close}, nil
}

// NewConnector makes a database/sql connector of a part of the cluster. Closing
// it leaves the cluster as it is.
func (c *Cluster) NewConnector(v View) (*Connector, error) {
	part, err := c.view(v)
	if err != nil {
		return nil, err
	}
	return &Connector{view: part, close: part.closeWithTimeout}, nil
}

// OpenDB makes a sql.DB of a part of the cluster. Closing it leaves the cluster
// as it is.
func (c *Cluster) OpenDB(v View) (*sql.DB, error) {
	connector, err := c.NewConnector(v)
	if err != nil {
		return nil, err
	}
	return connector.db(), nil
}

// WaitReady waits until n connections are open; 0 means the smaller of
// MinIdle and LowWatermark, at least 1. It fails at once when none can be
// opened because of a setting, with the cause.
func (c *Cluster) WaitReady(ctx context.Context, n int) error {
	if n == 0 {
		n = max(1, min(c.cfg.MinIdle, c.cfg.LowWatermark))
	}
	caller := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer c.breaker.onPermanent(func(err error) {
		if c.waitIsUseless() {
			cancel(err)
		}
	})()
	err := c.res.WaitReady(ctx, n)
	var open *OpenError
	if err != nil && caller.Err() == nil && errors.As(context.Cause(ctx), &open) {
		return open
	}
	return err
}

// Close ends the cluster and all pools made from it: it refuses callers, waits
// for the loans until ctx ends, cuts those that are left, and gives the leases
// back. Budgets that were given by Config stay open.
func (c *Cluster) Close(ctx context.Context) error {
	c.quota.close()
	err := c.res.Close(ctx)
	if err == ErrClosed { //nolint:errorlint // bare: closed before, and all of it
		return nil
	}
	if reservoir.ClosedBefore(err) {
		return err // the rest is for the Close that came first
	}
	err = errjoin.Join(err, c.endListening()) // until then leases could be revoked whose connections were lent
	// Nothing is left that could need long, and ctx may have ended.
	return errjoin.Join(err, c.withCloseTimeout(func(ctx context.Context) error {
		c.repairs.Close()
		c.repairs.Wait(ctx)
		return c.budgets.close(ctx)
	}))
}
