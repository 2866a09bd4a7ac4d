package grpcconn

import (
	"errors"
	"time"
)

// pings asks a peer that is silent while RPCs are under way whether it still lives. It
// is guarded by the lock of its connection.
//
// The silence also counts behind an RPC that was given up before anything came of it: the
// peer of a series of calls that all reach their deadlines is asked as that of one is. It is asked
// while an RPC is under way alone, since servers count other pings as abuse, or while it reads so
// little that none can begin.
type pings struct {
	timer    *time.Timer
	running  bool   // the timer is
	received uint64 // reads at the latest look
	begun    uint64 // reads when the latest RPC began
	silent   int    // looks since, in a row, at which nothing had come
	asked    bool   // by a ping, since nothing had come
}

// looks is how often the peer is looked at in Config.Keepalive. So nothing has to be noted
// when something comes; a ping is late by a quarter at most.
const looks = 4

func (p *pings) stop() {
	if p.timer != nil {
		p.timer.Stop()
	}
}

var errSilent = errors.New("keepalive: the server does not answer a ping")

// watch has the peer looked at in time. It is called when an RPC begins, with the lock
// held.
func (c *Conn) watch() {
	if c.cfg.Keepalive <= 0 {
		return
	}
	p, received := &c.mu.pings, c.received.Load()
	p.begun = received
	switch {
	case p.running:
	case p.silent == looks && received == p.received:
		c.ask()
	default:
		p.received, p.silent, p.asked = received, 0, false
		c.lookIn(c.cfg.Keepalive / looks)
	}
}

// lookIn has the peer looked at after d. The lock is held.
func (c *Conn) lookIn(d time.Duration) {
	p := &c.mu.pings
	if p.running = true; p.timer == nil {
		p.timer = time.AfterFunc(d, c.look)
	} else {
		p.timer.Reset(d)
	}
}

// ask sends a ping. The lock is held.
func (c *Conn) ask() {
	c.mu.pings.asked = true
	c.mu.out = appendPing(c.mu.out, 0, [8]byte{})
	c.startWriter()
	c.lookIn(c.cfg.KeepaliveTimeout)
}

// look is what the timer calls. Whatever has come since the look before shows that the peer
// lives.
func (c *Conn) look() {
	c.mu.Lock()
	p := &c.mu.pings
	p.running = false
	if c.mu.err != nil {
		c.mu.Unlock()
		return
	}
	received := c.received.Load()
	if received != p.received {
		p.received, p.silent, p.asked = received, 0, false
	} else if p.silent < looks {
		p.silent++
	}
	switch {
	case p.asked:
		c.mu.Unlock()
		c.end(errSilent)
		return
	case len(c.mu.streams) == 0 && received != p.begun:
		p.silent = 0
	case p.silent < looks:
		c.lookIn(c.cfg.Keepalive / looks)
	case len(c.mu.streams) > 0 || len(c.mu.out) >= maxOutBegin: // no RPC can begin
		c.ask()
	default: // the next RPC asks
	}
	c.mu.Unlock()
}
