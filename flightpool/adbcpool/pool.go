package adbcpool

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/apache/arrow-adbc/go/adbc"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/sqldriver"
	"github.com/flightpool/flightpool/internal/adbcconn"
	"github.com/flightpool/flightpool/internal/driverapi"
	"github.com/flightpool/flightpool/internal/errjoin"
)

// New makes a pool of connections of db, of any ADBC driver. db stays the
// caller's, to be closed after the pool.
//
// Several goroutines open connections of db, and close them, at a time, each connection being entered
// by one alone. ADBC leaves it to a driver whether it takes that.
//
// A statement is cancelled by its context, which is all that ADBC has; a
// connection on which that has not helped is dropped, and each of ADBC's Flight SQL
// driver, with which nothing shows whether it has. A driver that does not
// return when its context has ended holds up nobody: its connection is given
// up, and closed if the driver returns after all.
//
// What is the database's own cannot be set here: Auth, TLS, Headers, SessionHeader, Locations,
// Dialer, DialOptions, Traffic, StatementCache, Allocator, MaxMessage, Cancel.Actions and Layer of cfg must be
// zero. For ADBC's Flight SQL driver use Open: with New the pool cannot see
// that driver dial again, and with that lose the session. See the package
// comment for what is done about it. Under ADBC's driver manager, which does not tell
// the endpoints of a result, New fails with that driver.
func New(ctx context.Context, db adbc.Database, cfg flightpool.Config) (*flightpool.FlightSQLPool, error) {
	if err := errjoin.Join(checkDatabase(db), checkUnusedFields(cfg)); err != nil {
		return nil, driverapi.BadArgument("New", err)
	}
	conn := adbcconn.GenericConfig{ProbeSQL: cfg.HealthCheck.SQL, CloseTimeout: cfg.CloseTimeout, ToldApart: new(atomic.Bool)}
	return flightpool.NewWith(ctx, func(ctx context.Context) (backend.Conn, error) {
		return adbcconn.OpenGeneric(ctx, db, conn)
	}, cfg)
}

func checkDatabase(db adbc.Database) error {
	if db == nil {
		return errors.New("db: is required")
	}
	return nil
}

// ownedError is the fault of a field that somebody else has the say about.
func ownedError(field, whose string) error { return fmt.Errorf("%s: is %s", field, whose) }

// checkUnusedFields names the fields that would be ignored.
func checkUnusedFields(cfg flightpool.Config) error {
	var faults []error
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"Auth", cfg.Auth.String() != "none"},
		{"TLS", cfg.TLS != nil},
		{"Headers", cfg.Headers != nil},
		{"SessionHeader", cfg.SessionHeader != ""},
		{"Locations", cfg.Locations != nil},
		{"Dialer", cfg.Dialer != nil},
		{"DialOptions", cfg.DialOptions != nil},
		{"StatementCache", cfg.StatementCache != 0},
		{"Traffic", cfg.Traffic != nil},
		{"Allocator", cfg.Allocator != nil},
		{"MaxMessage", cfg.MaxMessage != 0},
		{"Cancel.Actions", cfg.Cancel.Actions != nil},
		{"Layer", cfg.Layer != nil},
	} {
		if field.set {
			faults = append(faults, ownedError(field.name, "the database's own"))
		}
	}
	return errjoin.Join(faults...)
}

// Open makes a pool whose statements go through ADBC's own Flight SQL driver.
// target and cfg are those of flightpool.New, and all of cfg applies, but that StatementCache
// keeps nothing: the driver runs on transports that the pool dials, so that credentials, TLS,
// limits, lost sessions and server-side cancel are the pool's. cfg.Layer must
// be nil.
//
// It fails when the environment variable OTEL_TRACES_EXPORTER names an
// exporter that the driver does not know; "none" is one of these.
func Open(ctx context.Context, target string, cfg flightpool.Config) (*flightpool.FlightSQLPool, error) {
	if cfg.Layer != nil {
		return nil, driverapi.BadArgument("Open", ownedError("Layer", "the driver's place"))
	}
	driver, err := adbcconn.NewDriver(cfg.Allocator)
	if err != nil {
		return nil, driverapi.BadArgument("Open", err)
	}
	cfg.Layer = driver
	p, err := flightpool.New(ctx, target, cfg)
	if err != nil {
		return nil, errjoin.Join(err, driver.Close())
	}
	return p, nil
}

// OpenDB is the pool as a *sql.DB.
//
// Deprecated: use sqldriver.OpenDB, which is the same without ADBC.
func OpenDB(p *flightpool.FlightSQLPool) *sql.DB { return sqldriver.OpenDB(p) }
