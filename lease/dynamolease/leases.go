package dynamolease

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/lease/internal/fifo"
)

// Leases is a fleet's budget of connections in a DynamoDB table. It is a
// lease.Leases and a lease.Revoker.
type Leases struct {
	cfg      Config
	table    *table
	validity time.Duration // of a heartbeat, counted from its sending
	stop     context.CancelFunc
	running  sync.WaitGroup

	growth  chan struct{} // wakes the keeper: something to take or give back
	session chan struct{} // wakes the heartbeat: the session is lost

	mu sync.Mutex
	// INVARIANT: inUse counts the grants whose release was not called, which
	// is at least the connections that exist. A grant needs inUse < capacity.
	inUse   int
	waiting fifo.Queue
	book    book
	idle    chan struct{} // closed when closed && inUse == 0
	closed  bool
	counts  lease.Stats // the counters only
	subs    map[*subscription]struct{}
}

// New joins the fleet that shares cfg.Budget. It makes what is missing of the
// budget in the table and takes no lease yet. When the table does not answer
// New succeeds all the same, cfg.Fallback decides, and joining goes on in the
// background; a wrong setting or a missing permission is a *ConfigError.
// ctx bounds New alone. Close ends the goroutines.
func New(ctx context.Context, client *dynamodb.Client, cfg Config) (*Leases, error) {
	if client == nil {
		return nil, errors.New("dynamolease: the DynamoDB client is nil")
	}
	return newLeases(ctx, client, cfg)
}

func newLeases(ctx context.Context, client api, cfg Config) (*Leases, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	l := &Leases{
		cfg:      cfg,
		table:    newTable(client, cfg.Table, "Config", cfg.RequestTimeout),
		validity: cfg.Lease * 2 / 3, // leaves a third for noticing a death
		growth:   make(chan struct{}, 1),
		session:  make(chan struct{}, 1),
		idle:     make(chan struct{}),
		subs:     map[*subscription]struct{}{},
	}
	l.book.shards = make([]holding, cfg.Shards)
	var err error
	for tries := 0; tries == 0 || tries < 3 && err != nil && !isPermanent(err); tries++ {
		err = l.join(ctx)
	}
	if isPermanent(err) {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, errors.Join(context.Cause(ctx), err)
	}
	if err != nil {
		l.degrade(err)
	}
	own, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.stop = stop
	l.running.Go(func() { l.heartbeats(own) })
	l.running.Go(func() { l.keep(own) })
	l.running.Go(func() { l.watch(own) })
	return l, nil
}

// Acquire is as lease.Leases says.
func (l *Leases) Acquire(ctx context.Context) (func(), error) {
	var ticket *fifo.Ticket
	var refusal error
	l.change(func() {
		switch {
		case l.closed:
			refusal = l.fail(lease.ErrClosed, nil)
		case ctx.Err() != nil:
			refusal = l.fail(lease.ErrLimit, context.Cause(ctx))
		default:
			ticket = l.waiting.Join() // answered by change if there is room
		}
		if refusal != nil {
			l.counts.Denied++
		}
	})
	if refusal != nil {
		return nil, refusal
	}
	wake(l.growth)
	select {
	case err := <-ticket.Answered():
		if err != nil {
			return nil, err
		}
		return sync.OnceFunc(l.release), nil
	case <-ctx.Done():
		return nil, l.leave(ctx, ticket)
	}
}

// leave ends a wait whose ctx ended. A lease granted meanwhile goes back.
func (l *Leases) leave(ctx context.Context, ticket *fifo.Ticket) error {
	var left bool
	var err error
	l.change(func() {
		left = l.waiting.Leave(ticket)
		l.counts.Denied++
		err = l.fail(lease.ErrLimit, errors.Join(context.Cause(ctx), l.book.cause))
	})
	if !left && <-ticket.Answered() == nil {
		l.release()
	}
	return err
}

func (l *Leases) release() {
	l.change(func() {
		l.inUse--
		if l.closed && l.inUse == 0 {
			close(l.idle)
		}
	})
	wake(l.growth)
}

// change is the one way to change the state under mu: it runs f, then serves
// the waiters as far as the new state allows.
func (l *Leases) change(f func()) {
	l.mu.Lock()
	f()
	s := l.serve(time.Now())
	cause := l.book.cause
	l.mu.Unlock()
	if s.news {
		l.cfg.Logger.Warn("leases cannot be renewed: the fallback decides",
			"budget", l.cfg.Budget, "fallback", l.cfg.Fallback.String(), "strict", l.cfg.Strict, "cause", cause)
	}
	for _, ticket := range s.granted {
		ticket.Answer(nil)
	}
	for _, ticket := range s.refused {
		ticket.Answer(s.refusal)
	}
}

// served is what became of waiters.
type served struct {
	granted, refused []*fifo.Ticket
	refusal          error
	news             bool // the Fallback decides from now on
}

// INVARIANT: what the Fallback decides is told before it takes effect. A
// process that stood still may ask for leases before its next heartbeat can
// tell that theirs have lapsed.
func (l *Leases) serve(now time.Time) (s served) {
	valid := l.valid(now)
	capacity := l.capacity(now)
	fallbacks := l.counts.Fallbacks
	for l.inUse < capacity && l.waiting.Len() > 0 {
		s.granted = append(s.granted, l.waiting.Next())
		l.inUse++
		l.counts.Granted++
		if !valid && l.inUse > l.book.held() {
			l.counts.Fallbacks++
		}
	}
	if !valid && l.waiting.Len() > 0 {
		s.refusal = l.fail(lease.ErrUnavailable, l.book.cause)
		s.refused = l.waiting.All()
		l.counts.Denied += uint64(len(s.refused))
	}
	decided := s.refusal != nil || l.counts.Fallbacks > fallbacks
	if decided && !l.book.degraded && !l.cfg.knobs.silent {
		l.book.degraded, l.book.cause = true, cmp.Or(l.book.cause, errLapsed)
	}
	s.news = l.book.degraded && !l.book.told
	l.book.told = l.book.degraded
	return s
}

// valid reports whether a connection whose open starts now exists before the
// leases' validity ends.
func (l *Leases) valid(now time.Time) bool {
	return now.Add(l.cfg.OpenTimeout).Before(l.book.validUntil)
}

// capacity is how many connections this process may have. Leases whose
// validity lapsed still cover what they covered unless the mode is strict: the
// count of connections does not rise, and whether they went to others is only
// known when the table answers.
func (l *Leases) capacity(now time.Time) int {
	held := l.book.held() - l.book.ebbing
	switch {
	case l.valid(now):
		return held
	case l.cfg.Strict:
		return 0
	default:
		return max(held, l.cfg.Fallback.Allows())
	}
}

// Valid reports, by ErrUnavailable, that a lease granted before must not be
// used for a new connection any more. lease.Admit asks after its wait for a
// permit.
func (l *Leases) Valid() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.valid(time.Now()) && l.inUse > l.capacity(time.Now()) {
		return l.fail(lease.ErrUnavailable, l.book.cause)
	}
	return nil
}

// Stats is as lease.Leases says.
func (l *Leases) Stats() lease.Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.counts
	for _, shard := range l.book.shards {
		s.Limit += int(shard.limit)
		s.Used += int(shard.used)
	}
	held := l.book.held()
	s.InUse, s.Waiting = l.inUse, l.waiting.Len()
	s.Spare, s.Unbacked = max(held-l.inUse, 0), max(l.inUse-held, 0)
	s.Degraded = l.book.degraded
	if s.Degraded {
		s.Cause = l.book.cause
	}
	s.Traffic = l.table.traffic()
	return s
}

func (l *Leases) fail(reason, cause error) error {
	used := 0
	for _, shard := range l.book.shards {
		used += int(shard.used)
	}
	return &lease.Error{Budget: l.cfg.Budget, Reason: reason, Used: used, Limit: l.cfg.Limit, Err: cause}
}

// wake never blocks: one signal pending is as good as many.
func wake(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// pause waits for d or a signal and reports whether ctx is still alive.
func pause(ctx context.Context, d time.Duration, signal <-chan struct{}) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-signal:
		return true
	case <-ctx.Done():
		return false
	}
}

func newSessionID() string { return rand.Text() }
