package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/puddle/v2"

	"github.com/flightpool/flightpool/reservoir"
)

// A pool is what the works need of a peer: borrow and give back, with nothing
// between that would be measured beside it.
type pool interface {
	// cycle borrows a connection, calls use if there is one, and returns it.
	cycle(ctx context.Context, use func()) error
	// opens is how many connections were opened so far.
	opens() int
	// look takes the lock for which callers who wait and leave compete.
	look()
	close()
}

// A peer makes pools of up to size connections, each taking dial to open.
type peer struct {
	name  string
	ages  bool // knows when connections are too old
	limit bool // is no pool: it shows what no pool under a lock can go below
	make  func(s setting) pool
}

// A setting is how a pool is to be. What a peer has no means for it leaves out.
type setting struct {
	size    int
	minIdle int           // connections that are kept ready
	life    time.Duration // of a connection; 0: for ever
	dial    time.Duration // what it takes to open one
}

var (
	ours  = peer{name: "reservoir", ages: true, make: newReservoir}
	peers = []peer{
		{name: "puddle", make: newPuddle},
		{name: "database/sql", ages: true, make: newSQL},
		{name: "two_locks", limit: true, make: newTwoLocks},
	}
)

// A dialer opens connections that are nothing but numbers.
type dialer struct {
	dial  time.Duration
	count atomic.Int64
}

func (d *dialer) open(ctx context.Context) (int64, error) {
	n := d.count.Add(1)
	if d.dial > 0 {
		select {
		case <-time.After(d.dial):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return n, nil
}

func (d *dialer) opens() int { return int(d.count.Load()) }

type reservoirPool struct {
	dialer
	r *reservoir.Reservoir[int64]
}

func newReservoir(s setting) pool {
	p := &reservoirPool{dialer: dialer{dial: s.dial}}
	r, err := reservoir.New(reservoir.Config[int64]{
		Open:    p.open,
		Close:   func(int64) error { return nil },
		MaxSize: s.size, MinIdle: s.minIdle, MaxLifetime: s.life,
	})
	must(err)
	p.r = r
	return p
}

func (p *reservoirPool) cycle(ctx context.Context, use func()) error {
	loan, err := p.r.Acquire(ctx)
	if err != nil {
		return err
	}
	if use != nil {
		use()
	}
	return loan.Release()
}

func (p *reservoirPool) look() { _, _ = p.r.TryAcquire() } // in vain

func (p *reservoirPool) close() { must(p.r.Close(context.Background())) }

type puddlePool struct {
	dialer
	p *puddle.Pool[int64]
}

func newPuddle(s setting) pool {
	p := &puddlePool{dialer: dialer{dial: s.dial}}
	inner, err := puddle.NewPool(&puddle.Config[int64]{
		Constructor: p.open,
		Destructor:  func(int64) {},
		MaxSize:     int32(s.size),
	})
	must(err)
	p.p = inner
	return p
}

func (p *puddlePool) cycle(ctx context.Context, use func()) error {
	res, err := p.p.Acquire(ctx)
	if err != nil {
		return err
	}
	if use != nil {
		use()
	}
	res.Release()
	return nil
}

func (p *puddlePool) look() { _, _ = p.p.TryAcquire(context.Background()) } // likewise

func (p *puddlePool) close() { p.p.Close() }

type sqlPool struct {
	dialer
	db *sql.DB
}

func newSQL(s setting) pool {
	p := &sqlPool{dialer: dialer{dial: s.dial}}
	p.db = sql.OpenDB(connector{p})
	p.db.SetMaxOpenConns(s.size)
	p.db.SetMaxIdleConns(s.size)
	p.db.SetConnMaxLifetime(s.life)
	return p
}

func (p *sqlPool) cycle(ctx context.Context, use func()) error {
	c, err := p.db.Conn(ctx)
	if err != nil {
		return err
	}
	if use != nil {
		use()
	}
	return c.Close()
}

func (p *sqlPool) look() { _ = p.db.Stats() }

func (p *sqlPool) close() { must(p.db.Close()) }

// connector and conn are the least driver that database/sql takes.
type connector struct{ p *sqlPool }

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	_, err := c.p.open(ctx)
	return conn{}, err
}

func (c connector) Driver() driver.Driver { return nil }

type conn struct{}

var errNotADatabase = errors.New("bench: not a database")

func (conn) Prepare(string) (driver.Stmt, error) { return nil, errNotADatabase }
func (conn) Begin() (driver.Tx, error)           { return nil, errNotADatabase }
func (conn) Close() error                        { return nil }

// A twoLocks locks and unlocks a mutex to borrow, and to return.
type twoLocks struct {
	mu    sync.Mutex
	taken int
}

func newTwoLocks(setting) pool { return new(twoLocks) }

func (p *twoLocks) cycle(_ context.Context, use func()) error {
	p.step(1)
	if use != nil {
		use()
	}
	p.step(-1)
	return nil
}

//go:noinline
func (p *twoLocks) step(n int) {
	p.mu.Lock()
	p.taken += n
	p.mu.Unlock()
}

func (p *twoLocks) opens() int { return 0 }
func (p *twoLocks) look()      { p.step(0) }
func (p *twoLocks) close()     {}
