package flightpool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// earliest is how long before its expiry a token is not used any more,
	// for the way to the server and clocks that differ. A token that lives
	// for less than twice as long is used for half its life.
	earliest = 10 * time.Second

	// fetchLimit bounds one call of a TokenSource. An open that waits for it
	// gives up after DialTimeout, but the token serves the next one.
	fetchLimit = 30 * time.Second
)

// credential is what the calls of a pool present.
type credential struct {
	// header gives the authorization header; nil when there is none.
	// rejected is what the server refused last.
	header func(ctx context.Context, rejected string) (string, error)
	// stop ends what header has under way.
	stop func()
}

// credential makes the credential of a pool that lives as long as life.
func (a Auth) credential(life context.Context) credential {
	switch {
	case a.source != nil:
		t := newTokens(life, a.source)
		return credential{t.header, t.close}
	case a.header != nil:
		return credential{func(context.Context, string) (string, error) { return a.header.reveal(), nil }, func() {}}
	default:
		return credential{stop: func() {}}
	}
}

// tokens keeps the last token of a source.
//
// INVARIANT: at most one call of the source is under way, and it does not end
// with the caller that happened to need it first.
type tokens struct {
	source   TokenSource
	life     context.Context //nolint:containedctx // the pool's
	end      context.CancelFunc
	fetching sync.WaitGroup

	mu struct { // guards the fields below; nothing is called under it
		sync.Mutex
		header string
		until  time.Time // when header is too old to use; zero: never
		under  *fetch    // under way, or nil
		closed bool
	}
}

// fetch is one call of the source.
type fetch struct {
	done   chan struct{} // closed when the fields below are set
	header string
	err    error
}

func newTokens(life context.Context, source TokenSource) *tokens {
	t := &tokens{source: source}
	t.life, t.end = context.WithCancel(life)
	return t
}

// close ends the call under way and waits for it.
func (t *tokens) close() {
	t.mu.Lock()
	t.mu.closed = true
	t.mu.Unlock()
	t.end()
	t.fetching.Wait()
}

// header gives the token, fetching one if need be.
func (t *tokens) header(ctx context.Context, rejected string) (string, error) {
	header, f := t.look(rejected)
	if f == nil {
		return header, nil
	}
	select {
	case <-f.done:
		return f.header, f.err
	case <-ctx.Done():
		return "", fmt.Errorf("waiting for a token: %w", ctx.Err())
	}
}

// look returns the token, or the call that will bring one.
func (t *tokens) look(rejected string) (string, *fetch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.mu.header; h != "" && h != rejected && (t.mu.until.IsZero() || time.Now().Before(t.mu.until)) {
		return h, nil
	}
	if t.mu.under == nil {
		f := &fetch{done: make(chan struct{})}
		if t.mu.closed {
			f.err = ErrClosed
			close(f.done)
			return "", f
		}
		t.mu.under = f
		t.fetching.Go(func() { t.fetch(f) })
	}
	return "", t.mu.under
}

// fetch calls the source and tells everybody who waits.
func (t *tokens) fetch(f *fetch) {
	ctx, stop := context.WithTimeout(t.life, fetchLimit)
	defer stop()
	token, expires, err := t.source(ctx)
	switch {
	case err != nil:
		f.err = fmt.Errorf("token source: %w", err)
	case token == "":
		f.err = errors.New("token source: gave an empty token")
	default:
		f.header = "Bearer " + token
	}
	t.mu.Lock()
	t.mu.under = nil
	if f.err == nil {
		t.mu.header, t.mu.until = f.header, usableUntil(expires)
	}
	t.mu.Unlock()
	close(f.done)
}

// usableUntil is when a token that was fetched now is too old to present.
func usableUntil(expires time.Time) time.Time {
	if expires.IsZero() {
		return expires
	}
	return expires.Add(-min(earliest, time.Until(expires)/2))
}
