package grpcconn

import (
	"errors"
	"time"
)

// Close ends the connection and all RPCs. It tells the peer first (GOAWAY), for which it
// waits no longer than limit; zero or less: it does not. It may be called more than once.
func (c *Conn) Close(limit time.Duration) {
	if limit > 0 {
		c.sayGoodbye(limit)
	}
	c.end(errClosed)
}

// sayGoodbye sends GOAWAY and waits until all is written, or the connection has ended.
func (c *Conn) sayGoodbye(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	c.mu.Lock()
	if c.mu.err != nil {
		c.mu.Unlock()
		return
	}
	if c.mu.goAway == nil {
		c.mu.goAway = errClosed
	}
	c.mu.out = appendGoAway(c.mu.out, 0, codeNone)
	c.flush()
	for {
		c.mu.Lock()
		if !c.mu.writing || c.mu.err != nil {
			c.mu.Unlock()
			return
		}
		changed := c.changes()
		c.mu.Unlock()
		select {
		case <-changed:
		case <-timer.C:
			return
		}
	}
}

// end ends the connection for reason, if it has not ended yet: with it all RPCs, the
// reader and who writes.
//
// INVARIANT: Config.OnEnd has returned before any RPC ends for want of the connection. No RPC
// waits until that is closed: TLS would tell its peer, who may not read.
func (c *Conn) end(reason error) {
	c.mu.Lock()
	if c.mu.err != nil {
		c.mu.Unlock()
		return
	}
	c.mu.err = reason
	c.mu.pings.stop()
	c.mu.Unlock()
	c.cfg.OnEnd(reason)
	status := lostStatus(reason)
	c.mu.Lock()
	streams := c.mu.streams
	c.mu.streams = nil
	c.mu.out, c.mu.spare = nil, nil
	for _, s := range streams {
		s.finish(status, false)
	}
	c.tellChange()
	c.mu.Unlock()
	for _, s := range streams {
		s.wake()
	}
	_ = c.nc.Close()
	close(c.ended)
}

// protocolError is the peer's breach of HTTP/2, for which the connection ends.
type protocolError struct {
	code errorCode
	text string
}

func (e *protocolError) Error() string { return "HTTP/2: " + e.text }

// fail ends the connection for what reading it has failed with. A peer that has broken
// the protocol is told, if that can be written at once.
func (c *Conn) fail(err error) {
	var protocol *protocolError
	if errors.As(err, &protocol) {
		c.mu.Lock()
		if c.mu.err == nil {
			c.mu.out = appendGoAway(c.mu.out, 0, protocol.code)
			c.flush()
		} else {
			c.mu.Unlock()
		}
	}
	c.end(err)
}
