package grpcconn

import (
	"errors"
	"time"
)

// pings asks a peer that is silent while RPCs are under way whether it still lives. It
// is guarded by the lock of its connection.
type pings struct {
	timer    *time.Timer
	received uint64 // reads at the latest look
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
	if c.cfg.Keepalive <= 0 || len(c.mu.streams) != 1 {
		return
	}
	p := &c.mu.pings
	p.received, p.silent, p.asked = c.received.Load(), 0, false
	if p.timer == nil {
		p.timer = time.AfterFunc(c.cfg.Keepalive/looks, c.look)
	} else {
		p.timer.Reset(c.cfg.Keepalive / looks)
	}
}

// look is what the timer calls. Whatever has come since the look before shows that the peer
// lives.
func (c *Conn) look() {
	c.mu.Lock()
	p := &c.mu.pings
	if c.mu.err != nil || len(c.mu.streams) == 0 {
		c.mu.Unlock()
		return
	}
	if received := c.received.Load(); received != p.received {
		p.received, p.silent, p.asked = received, 0, false
	} else {
		p.silent++
	}
	switch {
	case p.asked:
		c.mu.Unlock()
		c.end(errSilent)
		return
	case p.silent == looks:
		p.asked = true
		c.mu.out = appendPing(c.mu.out, 0, [8]byte{})
		c.startWriter()
		p.timer.Reset(c.cfg.KeepaliveTimeout)
	default:
		p.timer.Reset(c.cfg.Keepalive / looks)
	}
	c.mu.Unlock()
}
