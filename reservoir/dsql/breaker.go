package dsql

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flightpool/flightpool/internal/backoff"
)

// The pauses after refusals: the first, and the longest of a streak of the same. They
// double in between, and up to half of one is left to chance, so that a fleet does not
// come back as one.
var pauses = map[failureKind]struct{ first, longest time.Duration }{
	rateLimited: {100 * time.Millisecond, 5 * time.Second},
	connLimited: {time.Second, 30 * time.Second},
	permanent:   {time.Second, 5 * time.Second},
}

// An openBreaker delays all opens of a Cluster while the cluster refuses them.
type openBreaker struct {
	mu          sync.Mutex
	pausedUntil time.Time
	// refusals are the refusals of each kind since the last open that succeeded.
	refusals [permanent + 1]int
	// INVARIANT: permanentErr is the error of the latest open if no further open can
	// succeed; refusedErr is that error if the cluster refused the open, for its limits
	// or permanently. Both are nil after an open that succeeded.
	permanentErr, refusedErr error
	// failureCounts counts failed opens by kind.
	failureCounts [permanent + 1]uint64
	watchers      map[*watcher]struct{}
	// trialSlot holds the one attempt that finds out whether the cluster still refuses.
	// Made by initTrialSlot.
	trialSlot chan struct{}
}

// A watcher is told when opens fail permanently.
type watcher struct{ notify func(error) }

// waitPause returns when opens may go on.
func (b *openBreaker) waitPause(ctx context.Context) error {
	for {
		left := b.pauseLeft()
		if err := backoff.Sleep(ctx, left); err != nil || left == 0 {
			return err
		}
	}
}

// beginAttempt waits for the end of the pause and, while the latest open was refused,
// for the one trial slot: after a refusal one open at a time tries again; the others
// wait for its outcome. leave frees the slot. waited says that the attempt had to wait.
func (b *openBreaker) beginAttempt(ctx context.Context) (leave func(), waited bool, err error) {
	turn := b.initTrialSlot()
	for {
		waited = waited || b.pauseLeft() > 0
		if err := b.waitPause(ctx); err != nil {
			return nil, waited, err
		}
		if b.closed() {
			return func() {}, waited, nil
		}
		select {
		case turn <- struct{}{}:
		default:
			waited = true
			select {
			case turn <- struct{}{}:
			case <-ctx.Done():
				return nil, waited, ctx.Err()
			}
		}
		if !b.closed() && b.pauseLeft() == 0 {
			return func() { <-turn }, waited, nil
		}
		<-turn // the attempt before this one has ended: look again
	}
}

func (b *openBreaker) initTrialSlot() chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.trialSlot == nil {
		b.trialSlot = make(chan struct{}, 1)
	}
	return b.trialSlot
}

// closed says that the cluster does not refuse opens, as far as is known.
func (b *openBreaker) closed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refusals == [permanent + 1]int{}
}

// failed learns what became of an open. Refusals that come together, in one
// pause, are one.
func (b *openBreaker) failed(v failureKind, err error) {
	b.mu.Lock()
	var told []*watcher
	b.permanentErr, b.refusedErr = nil, nil
	b.failureCounts[v]++
	if v != transient {
		b.refusedErr = err
	}
	if v == permanent {
		b.permanentErr = err
		for w := range b.watchers {
			told = append(told, w)
		}
	}
	if limits, refused := pauses[v]; refused && !time.Now().Before(b.pausedUntil) {
		pause := backoff.Doubled(limits.first, limits.longest, b.refusals[v])
		b.refusals[v]++
		b.pausedUntil = time.Now().Add(pause - rand.N(pause/2+1))
	}
	b.mu.Unlock()
	for _, w := range told {
		w.notify(err)
	}
}

// succeeded resets the counts of refusals. A pause that is under way stays: others may
// have been refused after this one was admitted.
func (b *openBreaker) succeeded() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.permanentErr, b.refusedErr = nil, nil
	if !time.Now().Before(b.pausedUntil) {
		clear(b.refusals[:])
	}
}

// trialDue says that an open should find out whether opens still fail, and that none is
// under way. Where connections are kept ready the reservoir makes that open by itself;
// otherwise it opens only for callers.
func (b *openBreaker) trialDue() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !time.Now().Before(b.pausedUntil) && len(b.trialSlot) == 0
}

// lastRefusal is why the cluster refused the latest open, or nil.
func (b *openBreaker) lastRefusal() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refusedErr
}

// failures counts the failed opens so far, by kind.
func (b *openBreaker) failures() [permanent + 1]uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failureCounts
}

// pauseLeft is how long opens pause from now.
func (b *openBreaker) pauseLeft() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(0, time.Until(b.pausedUntil))
}

// onPermanent calls tell when opens fail permanently, at once if they do, until stop is
// called.
func (b *openBreaker) onPermanent(tell func(error)) (stop func()) {
	w := &watcher{tell}
	b.mu.Lock()
	err := b.permanentErr
	if b.watchers == nil {
		b.watchers = map[*watcher]struct{}{}
	}
	b.watchers[w] = struct{}{}
	b.mu.Unlock()
	if err != nil {
		tell(err)
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.watchers, w)
	}
}

// A failureKind is what a failed open means for the next.
type failureKind uint8

const (
	transient   failureKind = iota // try again soon
	rateLimited                    // 53400: the cluster's rate
	connLimited                    // 53300: the cluster's limit
	permanent                      // no open will succeed until somebody changes something
)

// What OpenError.Check names where the cluster may serve others.
const (
	checkUser        = "User, Region and Credentials"
	checkCredentials = "Credentials"
	checkDatabase    = "Database"

	checkAfterConnect = "AfterConnect"
)

// classify returns what the error of an open means, and names the settings to look at.
func classify(err error) (failureKind, string) {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return classifyAnswer(pg)
	}
	var (
		authority   x509.UnknownAuthorityError
		name        x509.HostnameError
		invalid     x509.CertificateInvalidError
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &authority), errors.As(err, &name), errors.As(err, &invalid), errors.As(err, &certificate):
		return permanent, "TLS and Host"
	case errors.As(err, &record), strings.Contains(err.Error(), "server refused TLS connection"):
		return permanent, "Host, Port and DirectTLS: the server does not speak TLS as asked"
	case pgconn.Timeout(err):
		return transient, "Host, Port and OpenTimeout"
	}
	return transient, ""
}

func classifyAnswer(pg *pgconn.PgError) (failureKind, string) {
	text := strings.ToLower(pg.Message)
	switch pg.Code {
	case "53400":
		return rateLimited, ""
	case "53300":
		return connLimited, "ConnLimit"
	case "3D000":
		return permanent, checkDatabase
	case "28000", "28P01":
		return permanent, checkUser
	case "08006":
		if strings.Contains(text, "access denied") || strings.Contains(text, "authentication failed") {
			return permanent, checkUser
		}
		if strings.Contains(text, "sni") {
			return permanent, "Host"
		}
	}
	return transient, ""
}
