package pglease

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flightpool/flightpool/lease/fleet"
)

// Connect makes a pool for leases out of a connection string: at most two
// connections, one for Leases and one for a Limiter, and a bound of two seconds
// for each to be made, unless connect_timeout is given. pgxpool's own is two
// minutes, for which a connection begun in an outage would stand in the way of
// those after it. Nothing is sent yet. The caller closes the pool after Leases
// and Limiter.
func Connect(ctx context.Context, connString string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(connString)
	if err != nil {
		return nil, unparsed(err)
	}
	if strings.Contains(cfg.ConnConfig.Host, "@") {
		return nil, errors.New("pglease: the connection string's host has an @: one that belongs to the password is written %40")
	}
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = 2, 0, 0
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = 2 * time.Second
	}
	return pgxpool.NewWithConfig(ctx, cfg)
}

// unparsed tells which part of a connection string is wrong, without a word of
// it: where it cannot be parsed, nobody knows what the password is.
func unparsed(err error) error {
	const text = "pglease: the connection string cannot be used"
	parse := (*pgconn.ParseConfigError)(nil)
	if !errors.As(err, &parse) {
		return errors.New(text)
	}
	rest := *parse
	rest.ConnString = ""
	what := strings.TrimPrefix(rest.Error(), "cannot parse ``: ")
	if i := strings.IndexAny(what, `:("`); i > 0 && !strings.HasPrefix(what, "failed to configure TLS") {
		what = strings.TrimSpace(what[:i]) // a value may follow
	}
	return errors.New(text + ": " + what)
}

// New joins the fleet that shares cfg.Budget: see fleet.New. It refuses a
// server or table that is unfit, see the package comment. The pool must not be
// the one whose connections are leased. cfg.Table is "schema.table", or "table" in the
// schema public; DefaultTable when it is empty.
func New(ctx context.Context, pool Pool, cfg fleet.Config) (*fleet.Leases, error) {
	store, err := openChecked(ctx, pool, cfg.Table, "Config")
	if err != nil {
		return nil, err
	}
	return fleet.New(ctx, store, cfg)
}

// NewLimiter joins the fleet that shares cfg.Budget: see fleet.NewLimiter, and
// New.
func NewLimiter(ctx context.Context, pool Pool, cfg fleet.LimiterConfig) (*fleet.Limiter, error) {
	store, err := openChecked(ctx, pool, cfg.Table, "LimiterConfig")
	if err != nil {
		return nil, err
	}
	return fleet.NewLimiter(ctx, store, cfg)
}

// checkTimeout bounds the first look at the table. A server that does not
// answer is looked at later.
const checkTimeout = 2 * time.Second

func openChecked(ctx context.Context, pool Pool, tableName, setting string) (*Store, error) {
	store, err := newStore(pool, tableName, setting)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var wrong *fleet.ConfigError
	if err := store.withCheckedConn(ctx, true, func(*pgconn.PgConn) error { return nil }); errors.As(err, &wrong) {
		return nil, err
	}
	return store, nil
}
