package fleet

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/lease"
)

// Config describes a fleet's budget of connections. Zero fields take their
// default.
//
// The store keeps Limit, Shards, Lease and Grace of a budget. Who comes first
// writes them; afterwards the store's are used, and a log line tells when
// Config has others. SetLimit changes the limit.
type Config struct {
	// Table is the table of the store, where it needs one: DynamoDB requires
	// it.
	Table string

	// Budget names what the connections go to, for example the cluster's
	// endpoint. All processes that share a limit use the same name. Required.
	Budget string

	// Limit is the number of connections the fleet may have. Required.
	Limit int

	// Want is how many connections this process expects to have, for example
	// the size of its pool; 0 when that is not known. Up to so many leases are
	// taken at once and kept while others do not need them. The first process
	// takes Limit/Want for the number of processes to expect.
	Want int

	// Shards is over how many records the limit is spread. By default one for
	// 28 of the processes to expect, at most 64: so many fit into one write
	// unit of DynamoDB.
	Shards int

	// Lease is within what time the leases of a dead process are free again,
	// Grace added: 60s by default, at least 3s.
	Lease time.Duration

	// Grace is how long connections may outlive their lease's validity while
	// they are being closed: 20s by default, at least OpenTimeout.
	Grace time.Duration

	// OpenTimeout bounds the open of one connection. Nothing is granted that
	// could still be opening when the lease's validity ends: 5s by default,
	// at most a quarter of Lease.
	OpenTimeout time.Duration

	// Batch is how many leases are taken from the store at once: by default a
	// sixteenth of what each process would get of Limit, between 1 and 10.
	Batch int

	// Settle is how long a surplus of more than two batches above Want is kept
	// before it goes back to the fleet: 60s by default. While the fleet is
	// short every surplus goes back at once.
	Settle time.Duration

	// Fallback is what is granted while the store cannot be reached:
	// lease.Pessimistic by default. With a lease.Share this process has no
	// more than that, or than the connections that it had before, also for
	// Lease/20 and three RequestTimeouts (6s by default) after it has joined,
	// has taken its first lease for some time, or after an outage.
	Fallback lease.Fallback

	// Strict revokes every connection as soon as the leases' validity has
	// lapsed, even though the store may be unreachable for everybody.
	// Without it connections are kept until the process knows that its
	// leases went to others. Strict requires the Pessimistic fallback.
	Strict bool

	// RequestTimeout bounds one request to the store: 1s by default, at most
	// a twelfth of Lease.
	RequestTimeout time.Duration

	// Service names the program for operators, see Inspect: the name of the
	// executable by default.
	Service string

	// Logger receives each change between reachable and unreachable, losses
	// and dead processes: slog.Default() by default. A panic in its handler is caught.
	Logger *slog.Logger
}

// LimiterConfig describes a fleet's budget of opens. Zero fields take their
// default.
type LimiterConfig struct {
	// Table and Budget are as in Config. A Limiter and a Leases may share
	// both.
	Table, Budget string

	// Rate is how many opens per second the fleet may make: 100 by default.
	Rate float64

	// Burst bounds the opens of any window of t seconds to Rate·t + Burst:
	// 500 by default, at least 10, at most math.MaxInt32. Keep it below the
	// server's own, which other clients may use too.
	Burst int

	// Tick is the longest step in which the budget refills. A tenth of the
	// time in which Burst refills by default, at most 250ms, which is its
	// upper bound too. Six ticks' worth of Burst pays for lost and late
	// messages.
	Tick time.Duration

	// Batch is how many permits are reserved at once when as many callers
	// wait: 10 by default, and no more than MaxWait pays for.
	Batch int

	// MaxWait is how far ahead permits are reserved, and the rest of a batch
	// further: 30s by default. While all of that is reserved, the callers of a
	// process wait until it finds room: it looks after a third to two thirds of MaxWait.
	MaxWait time.Duration

	// Fallback is what is granted while the store cannot be reached, in
	// opens per second: lease.Pessimistic by default.
	Fallback lease.Fallback

	// Patience is how long requests may fail before the Fallback takes
	// over: 3s by default.
	Patience time.Duration

	// RequestTimeout bounds one request to the store: 1s by default.
	RequestTimeout time.Duration

	// Logger is as in Config.
	Logger *slog.Logger
}

// ownersPerShard is how many entries, of about 26 bytes each, fit into one
// write unit of DynamoDB (1 KiB) with room for some that are dead.
const ownersPerShard = 28

const defaultMaxShards = 64 // by default

// What a budget's record may say at most.
const (
	limitBound    = math.MaxInt32 // an int of 32 bits holds it
	shardsBound   = 1 << 16
	durationBound = 30 * 24 * time.Hour
)

// validate sets the defaults in c and tells all faults at once. Bounds are those of the
// protocol: see terms, and answerTime for RequestTimeout.
func (c *Config) validate() error {
	if c.Limit > 0 && c.Want > 0 {
		c.Shards = cmp.Or(c.Shards, min((c.Limit/c.Want+ownersPerShard-1)/ownersPerShard, defaultMaxShards))
	}
	c.Shards = cmp.Or(c.Shards, 1)
	c.Lease = cmp.Or(c.Lease, time.Minute)
	c.Grace = cmp.Or(c.Grace, 20*time.Second)
	c.OpenTimeout = cmp.Or(c.OpenTimeout, 5*time.Second)
	c.Settle = cmp.Or(c.Settle, time.Minute)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, time.Second)
	c.Logger = callback.Logger(cmp.Or(c.Logger, slog.Default()))
	return errjoin.Join(
		errUnless(c.Budget != "", "Config.Budget is empty"),
		errUnless(c.Limit > 0 && c.Limit <= limitBound, "Config.Limit is %d, must be positive, and at most %d", c.Limit, limitBound),
		errUnless(c.Want >= 0, "Config.Want is %d, must not be negative", c.Want),
		errUnless(c.Shards > 0 && c.Shards <= min(max(c.Limit, 1), shardsBound), "Config.Shards is %d, must be between 1 and Limit, and at most %d", c.Shards, shardsBound),
		errUnless(c.Lease >= 3*time.Second && c.Lease <= durationBound, "Config.Lease is %v, must be at least 3s, and at most %v", c.Lease, durationBound),
		errUnless(c.OpenTimeout > 0 && c.OpenTimeout <= c.Lease/4, "Config.OpenTimeout is %v, must be positive and at most Lease/4", c.OpenTimeout),
		errUnless(c.Grace >= c.OpenTimeout && c.Grace <= durationBound, "Config.Grace is %v, must be at least OpenTimeout, and at most %v", c.Grace, durationBound),
		errUnless(c.Batch >= 0, "Config.Batch is %d, must be positive", c.Batch),
		errUnless(c.Settle > 0, "Config.Settle is %v, must be positive", c.Settle),
		errUnless(c.RequestTimeout > 0 && c.RequestTimeout <= c.Lease/12, "Config.RequestTimeout is %v, must be positive and at most Lease/12", c.RequestTimeout),
		errUnless(!c.Strict || c.Fallback == lease.Pessimistic(), "Config.Strict cannot hold with Config.Fallback %v", c.Fallback),
	)
}

// validate sets the defaults in c and tells all faults at once. Six ticks' worth of
// Burst are kept back by sharedBucket, and two must be left.
func (c *LimiterConfig) validate() error {
	c.Rate = cmp.Or(c.Rate, 100)
	c.Burst = cmp.Or(c.Burst, 500)
	c.Batch = cmp.Or(c.Batch, 10)
	c.MaxWait = cmp.Or(c.MaxWait, 30*time.Second)
	c.Patience = cmp.Or(c.Patience, 3*time.Second)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, time.Second)
	if c.Rate > 0 && c.Burst > 0 {
		c.Tick = cmp.Or(c.Tick, min(maxTick, seconds(float64(c.Burst)/c.Rate/10)))
	}
	c.Logger = callback.Logger(cmp.Or(c.Logger, slog.Default()))
	return errjoin.Join(
		errUnless(c.Budget != "", "LimiterConfig.Budget is empty"),
		errUnless(lease.CheckRate(c.Rate) == nil, "LimiterConfig.Rate is %v, must be finite and at least %v", c.Rate, lease.MinRate),
		errUnless(c.Burst >= 10 && c.Burst <= limitBound, "LimiterConfig.Burst is %d, must be at least 10, and at most %d", c.Burst, limitBound),
		errUnless(c.Tick > 0 && c.Tick <= maxTick && c.Rate*c.Tick.Seconds()*8 <= float64(c.Burst),
			"LimiterConfig.Tick is %v, must be positive, at most %v, and eight of it within Burst", c.Tick, maxTick),
		errUnless(c.Batch > 0, "LimiterConfig.Batch is %d, must be positive", c.Batch),
		errUnless(c.MaxWait > 0, "LimiterConfig.MaxWait is %v, must be positive", c.MaxWait),
		errUnless(c.Patience > 0, "LimiterConfig.Patience is %v, must be positive", c.Patience),
		errUnless(c.RequestTimeout > 0, "LimiterConfig.RequestTimeout is %v, must be positive", c.RequestTimeout),
	)
}

const maxTick = 250 * time.Millisecond

func errUnless(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf("lease: "+format, args...)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
