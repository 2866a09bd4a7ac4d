package flightpool

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/flightconn"
	"github.com/flightpool/flightpool/internal/taskgroup"
)

const (
	// expiryMargin is how long before its expiry a token is not used any more,
	// for the way to the server and clocks that differ. A token that lives
	// for less than twice as long is used for half its life.
	expiryMargin = 10 * time.Second

	// shortestUse is how long a new connection has to be usable. Opens for less would
	// follow each other without a pause; those that fail have one.
	shortestUse = 100 * time.Millisecond

	// fetchLimit bounds one call of a TokenSource. An open that waits for it
	// gives up after DialTimeout, but the token serves the next one.
	fetchLimit = 30 * time.Second

	// renewWait is how long an open waits for a younger token while the last
	// one still can be used.
	renewWait = time.Second
)

// expiresAt says until when a connection may be lent by its credential. The
// reservoir takes the guard window off, which the margin of a token contains
// already: with both, a token of a few seconds could never be used.
func (c Config) expiresAt(conn backend.Conn) time.Time {
	e, ok := conn.(backend.Expirer)
	if !ok || e.ExpiresAt().IsZero() {
		return time.Time{}
	}
	guard := max(c.GuardWindow, 0)
	if c.GuardWindow == 0 { // the reservoir's default
		guard = expiryMargin
		if c.MaxLifetime > 0 {
			guard = min(guard, c.MaxLifetime/12)
		}
	}
	until := usableUntil(e.ExpiresAt())
	if time.Until(until) < shortestUse {
		return until.Add(-shortestUse) // it has ended: a failed open
	}
	return until.Add(guard)
}

// tokenCache keeps the last token of a source.
//
// INVARIANT: at most one call of the source is under way, and it does not end
// with the caller that happened to need it first.
type tokenCache struct {
	source   TokenSource
	life     context.Context //nolint:containedctx // the pool's
	cancel   context.CancelFunc
	fetching taskgroup.Group

	mu struct { // guards the fields below; nothing is called under it
		sync.Mutex
		token    token
		inFlight *fetch // under way, or nil
		closed   bool
	}
}

// token is a credential and when new connections do without it. When it ends is what its
// source says, or else what the token itself names.
type token struct {
	flightconn.Credential
	renewAt    time.Time // when a younger one is asked for; zero: never
	validUntil time.Time // when it is too old to use; zero: never
}

func newToken(header string, expires time.Time) token {
	if expires.IsZero() {
		expires = flightconn.JWTExpiry(header)
	}
	t := token{Credential: flightconn.Credential{Header: header, Expires: expires}}
	if !expires.IsZero() {
		// A connection lives no longer than its token, so one that is opened
		// late in the token's life would soon be replaced, and all at once.
		now := time.Now()
		t.validUntil = usableUntil(expires)
		t.renewAt = now.Add(expires.Sub(now) / 2)
	}
	return t
}

// usable reports whether a new connection may have the token.
func (t token) usable(rejected string) bool {
	return t.Header != "" && t.Header != rejected && (t.validUntil.IsZero() || time.Now().Before(t.validUntil))
}

// fetch is one call of the source.
type fetch struct {
	done  chan struct{} // closed when the fields below are set
	token token
	err   error
}

func newTokenCache(life context.Context, source TokenSource) *tokenCache {
	t := &tokenCache{source: source}
	t.life, t.cancel = context.WithCancel(life)
	return t
}

// close ends the call under way and waits for it up to limit. What a source that
// ignores its context returns later is dropped.
func (t *tokenCache) close(limit time.Duration) error {
	t.mu.Lock()
	t.mu.closed = true
	t.mu.Unlock()
	t.cancel()
	bounded, cancel := context.WithTimeout(context.WithoutCancel(t.life), limit)
	defer cancel()
	if t.fetching.Wait(bounded) > 0 {
		return fmt.Errorf("a TokenSource has not returned within %v after its context ended", limit)
	}
	return nil
}

// get gives the token of a new connection, fetching one if need be. While the
// source fails, a token that still can be used is.
//
// A fetch that was under way may have begun before the server refused what it brings:
// the source is asked once more then.
func (t *tokenCache) get(ctx context.Context, rejected string) (flightconn.Credential, error) {
	last, f, underWay := t.currentOrFetch(rejected)
	c, err := t.await(ctx, last, f, rejected)
	if underWay && err == nil && c.Header == rejected {
		last, f, _ = t.currentOrFetch(rejected)
		c, err = t.await(ctx, last, f, rejected)
	}
	return c, err
}

// await waits for a fetch, where there is one, as long as last cannot be used.
func (t *tokenCache) await(ctx context.Context, last token, f *fetch, rejected string) (flightconn.Credential, error) {
	if f == nil {
		return last.Credential, nil
	}
	var renewTimeout <-chan time.Time
	if last.usable(rejected) {
		timer := time.NewTimer(renewWait)
		defer timer.Stop()
		renewTimeout = timer.C
	}
	select {
	case <-f.done:
		if f.err != nil && last.usable(rejected) {
			return last.Credential, nil
		}
		return f.token.Credential, f.err
	case <-renewTimeout:
		return last.Credential, nil
	case <-ctx.Done():
		return flightconn.Credential{}, &tokenError{fmt.Errorf("waiting for a token: %w", ctx.Err())}
	}
}

// currentOrFetch returns the last token, and the call that will bring another one if
// that is wanted. underWay says that somebody else has begun it.
func (t *tokenCache) currentOrFetch(rejected string) (last token, f *fetch, underWay bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	last = t.mu.token
	if last.usable(rejected) && (last.renewAt.IsZero() || time.Now().Before(last.renewAt)) {
		return last, nil, false
	}
	if t.mu.inFlight != nil {
		return last, t.mu.inFlight, true
	}
	f = &fetch{done: make(chan struct{})}
	if t.mu.closed {
		f.err = ErrClosed
		close(f.done)
		return token{}, f, false
	}
	t.mu.inFlight = f
	t.fetching.Go(func() { t.fetch(f) })
	return last, f, false
}

// fetch calls the source and tells everybody who waits.
func (t *tokenCache) fetch(f *fetch) {
	ctx, stop := context.WithTimeout(t.life, fetchLimit)
	defer stop()
	var value string
	var expires time.Time
	err := callback.Isolate(userCode, func() (err error) { value, expires, err = t.source(ctx); return err })
	if err == nil {
		if fault := checkToken(value); fault != nil {
			err = fmt.Errorf("its token %w", fault)
		}
	}
	if err != nil {
		f.err = &tokenError{fmt.Errorf("token source: %w", err)}
	} else {
		f.token = newToken("Bearer "+value, expires)
	}
	t.mu.Lock()
	t.mu.inFlight = nil
	if f.err == nil {
		t.mu.token = f.token
	}
	t.mu.Unlock()
	close(f.done)
}

// tokenError is a failure of a TokenSource, which says nothing of the server.
type tokenError struct{ err error }

func (e *tokenError) Error() string { return e.err.Error() }
func (e *tokenError) Unwrap() error { return e.err }

// usableUntil is when a token that was obtained now is too old to present.
func usableUntil(expires time.Time) time.Time {
	if expires.IsZero() {
		return expires
	}
	return expires.Add(-min(expiryMargin, time.Until(expires)/2))
}
