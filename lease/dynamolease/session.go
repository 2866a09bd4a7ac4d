package dynamolease

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

var (
	errOverrun = errors.New("the process was taken for dead, its leases went to others, and the budget is overrun")
	errLapsed  = errors.New("the leases' validity has lapsed")
	errNoBeat  = errors.New("the process is not registered")
)

// garbageAfter is when DynamoDB may remove the item of a session that ended.
const garbageAfter = 48 * time.Hour

// join makes the budget's items if need be, and registers a new session.
func (l *Leases) join(ctx context.Context) error {
	shards, err := setUp(ctx, l.table, &l.cfg)
	if err != nil {
		return err
	}
	session := newSessionID()
	sent := time.Now()
	_, result, err := l.table.write(ctx, l.register(session))
	if result != done {
		// A registration that was stored after all is garbage without leases.
		return errors.Join(errNoBeat, err)
	}
	recovered := false
	l.change(func() {
		l.book.restart(session, sent.Add(l.scaled(l.validity)), shards)
		recovered = l.recover()
	})
	l.logRecovery(recovered)
	wake(l.growth)
	return nil
}

func (l *Leases) register(session string) update {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	promise := l.validity + l.cfg.Grace
	if l.cfg.knobs.noGrace {
		promise = l.validity
	}
	return update{
		key:       sessionKey(l.cfg.Budget, session),
		set:       "SET rvn = :one, ms = :ms, host = :host, #ttl = :ttl",
		condition: "attribute_not_exists(pk)",
		names:     map[string]string{"#ttl": "ttl"},
		values: item{
			":one": number(1), ":host": text(host), ":ttl": garbageTime(),
			":ms": number(promise.Milliseconds()),
		},
	}
}

// heartbeats keeps the session alive, and starts a new one when it is lost.
func (l *Leases) heartbeats(ctx context.Context) {
	var backoff backoff
	next := l.validity / 4
	if l.unregistered() {
		next = 0
	}
	for pause(ctx, next, l.session) {
		sent := time.Now()
		if err := l.beat(ctx); err != nil {
			l.lapse(err)
			next = backoff.next(50*time.Millisecond, l.validity/16)
			continue
		}
		backoff = 0
		next = max(time.Until(sent.Add(l.validity/4)), 0)
	}
}

func (l *Leases) unregistered() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.book.lost || l.book.session == ""
}

// beat makes one heartbeat, or joins anew. When it fails the next one is sent
// as if it were the same: nobody knows which of them was stored.
func (l *Leases) beat(ctx context.Context) error {
	if l.unregistered() {
		return l.join(ctx)
	}
	sent := time.Now()
	l.mu.Lock()
	session, rvn := l.book.session, l.book.rvn
	if l.book.tried.IsZero() {
		l.book.tried = sent
	}
	first := l.book.tried
	l.mu.Unlock()

	it, result, err := l.table.write(ctx, l.pulse(session, rvn))
	stored := decodeHeartbeat(it)
	switch {
	case result == unknown:
		return err
	case result == refused && stored.exists && !stored.dead && stored.rvn == rvn+1:
		sent = first // an earlier try was stored, and only its reply lost
	case result == refused:
		l.forfeit()
		return l.join(ctx)
	}
	recovered := false
	l.change(func() { recovered = l.prolong(session, rvn+1, sent) })
	l.logRecovery(recovered)
	return nil
}

func (l *Leases) pulse(session string, rvn int64) update {
	u := update{
		key:       sessionKey(l.cfg.Budget, session),
		set:       "SET rvn = :next, #ttl = :ttl",
		condition: "rvn = :rvn AND attribute_not_exists(dead)",
		names:     map[string]string{"#ttl": "ttl"},
		values:    item{":rvn": number(rvn), ":next": number(rvn + 1), ":ttl": garbageTime()},
	}
	if l.cfg.knobs.blindHeartbeat {
		u.condition = "rvn = :rvn"
	}
	return u
}

// prolong books a heartbeat. The validity counts from its sending: no watcher
// can have seen it earlier.
func (l *Leases) prolong(session string, rvn int64, sent time.Time) (recovered bool) {
	if l.book.session != session || l.book.lost {
		return false
	}
	if l.cfg.knobs.fromReply {
		sent = time.Now()
	}
	l.book.rvn, l.book.tried = rvn, time.Time{}
	if until := sent.Add(l.scaled(l.validity)); until.After(l.book.validUntil) {
		l.book.validUntil = until
	}
	return l.recover()
}

// forfeit books that the session was fenced. What it held is gone; connections
// that exist are added to the next session's entry, limit or not, so that the
// sum stays honest.
func (l *Leases) forfeit() {
	before, revoke, inUse, until := false, false, 0, time.Time{}
	l.change(func() {
		before, inUse, until = l.book.lost, l.inUse, l.book.validUntil
		revoke = l.cfg.Strict && !before && inUse > 0 && !l.book.revoked
		l.book.forfeit()
		if !before {
			l.counts.Losses++
		}
	})
	wake(l.session)
	if !before {
		l.cfg.Logger.Warn("taken for dead: leases lost", "budget", l.cfg.Budget, "in_use", inUse)
	}
	if revoke {
		l.revoke(until.Add(l.cfg.Grace), errLapsed)
	}
}

// lapse notices that heartbeats have failed for too long.
func (l *Leases) lapse(err error) {
	now := time.Now()
	l.mu.Lock()
	l.book.cause = err
	valid, until := l.valid(now), l.book.validUntil
	revoke := l.cfg.Strict && !now.Before(until) && l.inUse > 0 && !l.book.revoked
	l.book.revoked = l.book.revoked || revoke
	l.mu.Unlock()
	if !valid {
		l.degrade(err)
	}
	if revoke {
		l.revoke(until.Add(l.cfg.Grace), errors.Join(errLapsed, err))
	}
}

func (l *Leases) degrade(err error) {
	l.change(func() { l.book.degraded, l.book.cause = true, err })
}

func (l *Leases) recover() (recovered bool) {
	recovered = l.book.degraded
	l.book.degraded, l.book.revoked, l.book.cause = false, false, nil
	return recovered
}

func (l *Leases) logRecovery(recovered bool) {
	if recovered {
		l.cfg.Logger.Info("leases are renewed again", "budget", l.cfg.Budget)
	}
}

func (l *Leases) scaled(d time.Duration) time.Duration {
	return time.Duration(float64(d) * l.cfg.knobs.clockRate)
}

func garbageTime() types.AttributeValue { return number(time.Now().Add(garbageAfter).Unix()) }
