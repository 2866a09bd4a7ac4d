package registry

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/taskgroup"
	"github.com/flightpool/flightpool/reservoir/sqlconn"
)

// Config is what all servers of a registry share. The zero Config is fine.
type Config struct {
	// Kinds are sorts of server beside the built-in ones; of the same name, in
	// their place.
	Kinds []Kind
	// Health is told when a server turns unhealthy, or, with nil, healthy again.
	// It is called for one turn of a server after the other, in their order, on a
	// goroutine of its own: it may call the registry, also to unregister the server.
	// What it has not been told when the server is closed, it is not told any more.
	Health func(server string, down *UnhealthyError)
	// Logger is told what needs an operator's eye. A panic in its handler is caught. Default: nobody.
	Logger *slog.Logger
	// Tracer gives what Config.Tracer of the pool of a user is to be, for each pool that is
	// made. It is called as a Kind is. On servers of database/sql a QueryTracer sees the calls
	// that borrowers make on Conn.SQL, an AcquireTracer that a connection is borrowed and a
	// ReleaseTracer that it is given back; neither may use the connection. The call of a query
	// ends with its rows. What fails there is told to Logger.
	Tracer func(server, user string) any
}

// Registry keeps connections to many servers for many users. Its methods may be
// called from any goroutine. Make one with New; end it with Close.
//
// A change of one server holds that server's changeLock, which may last as long as its
// Kind takes, and mu only to publish the new view. Calls take neither.
type Registry struct {
	cfg          Config
	kinds        map[string]Kind
	ownKindNames map[string]string // the names of the program's own kinds, by their lower case
	wrapper      *sqlconn.Wrapper

	// view is copied on every change, so that looking a server up takes no lock.
	view atomic.Pointer[view]

	mu          sync.Mutex // guards writes of view
	draining    drainingServers
	changeLocks changeLocks
	kindCalls   taskgroup.Group // of Kinds, what definitions are worth

	life             context.Context //nolint:containedctx // what everything in the background runs on
	end              context.CancelFunc
	startMaintenance sync.Once
	maintenance      sync.WaitGroup
	wake             chan struct{}
}

// view is all servers at one moment.
type view struct {
	servers map[string]*server
	closed  bool
}

// New makes an empty registry of the built-in kinds.
func New() *Registry {
	r, _ := NewWith(Config{}) // the zero Config has no fault
	return r
}

// NewWith makes an empty registry.
func NewWith(cfg Config) (*Registry, error) {
	all, folded, err := mergeKinds(cfg.Kinds)
	if err != nil {
		return nil, err
	}
	if cfg.Logger != nil {
		cfg.Logger = callback.Logger(cfg.Logger)
	}
	r := &Registry{cfg: cfg, kinds: all, ownKindNames: folded, wrapper: sqlconn.NewWrapper(), wake: make(chan struct{}, 1)}
	r.life, r.end = context.WithCancel(detached())
	r.view.Store(&view{servers: map[string]*server{}})
	return r, nil
}

// detached is the context that no caller can end: connections outlive the call
// that caused their opening.
func detached() context.Context { return context.Background() }

// updateView publishes a new view, unless the registry is closed. edit gets a copy:
// whoever has loaded a view goes on with what was registered then.
func (r *Registry) updateView(edit func(v *view)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.view.Load()
	if old.closed {
		return ErrClosed
	}
	v := &view{servers: maps.Clone(old.servers)}
	edit(v)
	r.view.Store(v)
	return nil
}

// Register adds a server, and, unless WarmupConnections is negative, makes the
// pools of its named users. It connects in the background. It returns every fault
// of the definition, or ErrExists.
func (r *Registry) Register(ctx context.Context, def ServerDefinition) error {
	d, err := r.resolveAndValidate(ctx, def)
	if err != nil {
		return err
	}
	unlock, err := r.changeLocks.lock(ctx, d.Name)
	if err != nil {
		return err
	}
	defer unlock()
	if r.view.Load().servers[d.Name] != nil {
		return fmt.Errorf("%w: %q", ErrExists, d.Name)
	}
	s := newServer(r, d)
	r.draining.countAgainst(s)
	written := def.clone()
	s.written.Store(&written)
	if err := s.createNamedPools(ctx, d); err != nil {
		r.closeUnregistered(s)
		return err
	}
	err = r.updateView(func(v *view) {
		v.servers[d.Name] = s
		r.startMaintenance.Do(func() { r.maintenance.Go(r.maintain) })
	})
	if err != nil {
		r.closeUnregistered(s)
		return err
	}
	r.wakeMaintenance()
	return nil
}

// closeUnregistered closes a server that did not come about, in the background: nobody waits
// for its Kind.
func (r *Registry) closeUnregistered(s *server) {
	r.draining.add(s)
	r.kindCalls.Add()
	go func() {
		defer r.kindCalls.Done()
		defer r.draining.prune(s.name)
		_ = s.close(r.life) // there are no loans
	}()
}

// createNamedPools makes the pools that a new server begins with. PUBLIC stands for
// nobody in particular, and has no pool before somebody calls.
func (s *server) createNamedPools(ctx context.Context, d *ServerDefinition) error {
	if d.WarmupConnections <= 0 {
		return nil
	}
	for name := range d.Users {
		if name == Public {
			continue
		}
		if _, err := s.getOrCreatePool(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// Update gives a server a new definition. Sizes, policies and the times of idle
// connections and waiters change in place. Where anything changed that connections
// are made with or checked by, the target, an option, a credential, new ones take
// the place of the old, which are closed as they come back: no borrower notices.
// The Kind has until ctx ends, and OpenTimeout, to make them.
// A user without a mapping any more keeps the borrowed connections. When a pool cannot
// be made of the new definition, nothing is changed.
func (r *Registry) Update(ctx context.Context, def ServerDefinition) error {
	unlock, err := r.changeLocks.lock(ctx, def.Name)
	if err != nil {
		return err
	}
	defer unlock()
	return r.update(ctx, def)
}

// update changes a definition. The caller has the right to. What was written is kept
// beside what it was resolved to, so that ALTER changes the owner's words and not the
// defaults that were filled in.
func (r *Registry) update(ctx context.Context, def ServerDefinition) error {
	d, err := r.resolveAndValidate(ctx, def)
	if err != nil {
		return err
	}
	s := r.view.Load().servers[d.Name]
	if s == nil {
		return unknownServerError(d.Name)
	}
	if err := s.update(ctx, d); err != nil {
		return &DefinitionError{Server: d.Name, Err: err}
	}
	written := def.clone()
	s.written.Store(&written)
	r.wakeMaintenance()
	return nil
}

// Unregister removes a server. It refuses new calls at once, waits until ctx ends
// for what is borrowed, and then takes that back; a *DrainError tells of it. A server
// that is registered by the same name meanwhile has what is left of
// MaxSize.
func (r *Registry) Unregister(ctx context.Context, name string) error {
	unlock, err := r.changeLocks.lock(ctx, name)
	if err != nil {
		return err
	}
	s := r.view.Load().servers[name]
	if s != nil {
		r.draining.add(s)
		err = r.updateView(func(v *view) { delete(v.servers, name) })
	}
	unlock()
	switch {
	case s == nil:
		return unknownServerError(name)
	case err != nil:
		return err // Close sees to it
	}
	defer r.draining.prune(name)
	return s.close(ctx)
}

// Close ends the registry: it refuses new calls at once, wakes everybody who
// waits with ErrClosed, waits until ctx ends for what is borrowed, of servers that an
// Unregister waits for too, and then takes
// that back. When it returns nil no goroutine and no connection of the registry is
// left, a call of Config.Health apart. A driver or a Kind that does not return keeps
// it for at most 5s after the end of ctx; a *DrainError tells of that. A second
// Close answers ErrClosed.
func (r *Registry) Close(ctx context.Context) error {
	if !r.changeLocks.close() {
		return ErrClosed
	}
	var servers map[string]*server
	_ = r.updateView(func(v *view) { servers, v.servers, v.closed = v.servers, map[string]*server{}, true }) // it was not closed before
	closing := r.draining.with(servers)
	var wg sync.WaitGroup
	faults := make([]error, len(closing))
	for i, s := range closing {
		wg.Go(func() { faults[i] = s.close(ctx) })
	}
	wg.Wait()
	faults = append(faults, r.awaitChanges(ctx))
	r.end()
	r.maintenance.Wait()
	return errjoin.Join(append(faults, r.wrapper.Close())...)
}

// server finds a server.
func (r *Registry) server(name string) (*server, error) {
	v := r.view.Load()
	if s := v.servers[name]; s != nil {
		return s, nil
	}
	if v.closed {
		return nil, ErrClosed
	}
	return nil, unknownServerError(name)
}

// Servers lists the names of the servers in order.
func (r *Registry) Servers() []string {
	return slices.Sorted(maps.Keys(r.view.Load().servers))
}

// Definition gives a server's definition as it was registered or updated last.
func (r *Registry) Definition(name string) (ServerDefinition, error) {
	s, err := r.server(name)
	if err != nil {
		return ServerDefinition{}, err
	}
	return s.written.Load().clone(), nil
}
