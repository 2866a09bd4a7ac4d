package poolz

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/lease"
)

// Config is how a Page is made. The zero value is ready to use.
type Config struct {
	// SlowerThan says which calls are slow. Default 1s; negative: none.
	SlowerThan time.Duration

	// Texts shows the texts of statements and errors, which may hold values and secrets.
	Texts bool

	// AllowRemote answers other machines too, under any name. The caller must see to it
	// who may ask.
	AllowRemote bool

	// Borrower names who borrows a connection, from the context of the call: a request, a
	// job, a tenant. What it returns is shown as it is. nil: the method is the name.
	Borrower func(ctx context.Context) string
}

const defaultSlowerThan = time.Second

// A Page is the http.Handler. Its methods may be called from any goroutine. Close it when
// done.
type Page struct {
	cfg     Config
	began   time.Time
	stop    chan struct{}
	stopped chan struct{}
	close   func()
	latest  latestUses

	summaries *summaries

	// No method of a pool, a registry or a budget is called with mu held.
	mu struct {
		sync.Mutex
		sources    map[string]*source // of pools
		servers    map[string]*source // of registries, found once a second
		registries map[string]*registry.Registry
		traced     map[string]bool // pools and registries that have a tracer of the page
		budgets    map[string]budget
		histories  int // at the latest look at all sources
		slow       ring[slowCall]
		events     ring[*event]
	}
}

// A budget is the limits of a fleet that pools keep; either may be nil.
type budget struct {
	leases  lease.Leases
	limiter lease.Limiter
}

// New makes a Page and starts to collect.
func New(cfg Config) *Page {
	cfg.SlowerThan = cmp.Or(cfg.SlowerThan, defaultSlowerThan)
	p := &Page{cfg: cfg, summaries: newSummaries(), began: time.Now(), stop: make(chan struct{}), stopped: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.stop) })
	p.mu.sources, p.mu.servers, p.mu.registries = map[string]*source{}, map[string]*source{}, map[string]*registry.Registry{}
	p.mu.traced, p.mu.budgets, p.latest.byID = map[string]bool{}, map[string]budget{}, map[uint64]*borrowing{}
	p.mu.slow.size, p.mu.events.size = maxSlow, maxEvents
	go p.collect()
	return p
}

// Close ends the collection and waits for that. The page still answers.
func (p *Page) Close() {
	p.close()
	<-p.stopped
}

// Add shows a pool under a name, in the place of another of that name.
func (p *Page) Add(name string, pool *flightpool.FlightSQLPool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.sources[name] = &source{name: name, added: name, pool: pool}
}

// AddRegistry shows the servers of a registry, those to come included, as name/server.
func (p *Page) AddRegistry(name string, r *registry.Registry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.registries[name] = r
}

// AddBudget shows what there is of a fleet's limits; either may be nil.
func (p *Page) AddBudget(name string, leases lease.Leases, limiter lease.Limiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.budgets[name] = budget{leases, limiter}
}

// Remove ends the showing of the pool, the registry and the budget of a name.
func (p *Page) Remove(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.sources, name)
	delete(p.mu.registries, name)
	delete(p.mu.traced, name)
	delete(p.mu.budgets, name)
}

// Tracer is what Config.Tracer of the pool is to be that will be added under the name. With
// another tracer it goes there as flightpool.Tracers.
func (p *Page) Tracer(name string) any {
	p.willTrace(name)
	return &watcher{page: p, name: name}
}

// RegistryTracer is what Config.Tracer of the registry is to be that will be added under the
// name.
func (p *Page) RegistryTracer(name string) func(server, user string) any {
	p.willTrace(name)
	return func(server, user string) any {
		return &watcher{page: p, name: serverName(name, server), user: cut(user)}
	}
}

func (p *Page) willTrace(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.traced[name] = true
}

// serverName is what a server of a registry is called on the page.
func serverName(registry, server string) string { return registry + "/" + server }

// A ring keeps the latest values, as many as its size.
type ring[T any] struct {
	size, next int
	values     []T
}

func (r *ring[T]) add(v T) {
	if len(r.values) < r.size {
		r.values = append(r.values, v)
		return
	}
	r.values[r.next] = v
	r.next = (r.next + 1) % r.size
}

// last gives the values, the latest first.
func (r *ring[T]) last() []T {
	all := make([]T, 0, len(r.values))
	for i := range r.values {
		all = append(all, r.values[(r.next+len(r.values)-1-i)%len(r.values)])
	}
	return all
}
