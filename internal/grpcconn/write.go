package grpcconn

import "time"

// Frames wait in out, which whoever appends to it holds the lock for. One goroutine at a time
// writes them (writing), without the lock.

// maxOut is how many bytes may wait in out for a message to be added, and maxOutBegin for the headers
// of an RPC and its first message, if that is short, which so do not wait behind the messages of others. Other frames are always taken: there
// are as many as RPCs, and as the peer has asked for (maxAcks).
const (
	maxOut      = 256 << 10
	maxOutBegin = 2 * maxOut
)

// maxIdleOut is how much of the memory for out is kept where no RPC is under way. A bulk load
// uses the same memory to its end.
const maxIdleOut = 16 << 10

// flush writes what waits, as far as the socket takes it at once; a goroutine writes the
// rest. It is called with the lock held, and gives it up.
func (c *Conn) flush() {
	if c.socket == nil {
		c.startWriter()
		c.mu.Unlock()
		return
	}
	for !c.mu.writing && len(c.mu.out) > 0 && c.mu.err == nil {
		out := c.takeOut()
		c.mu.Unlock()
		n, err := c.socket.tryWrite(out)
		c.cfg.OnWrite(n)
		if err != nil || n < len(out) {
			go c.write(out, n, err)
			return
		}
		c.mu.Lock()
		c.wrote(out)
	}
	c.mu.Unlock()
}

// startWriter has a goroutine write what waits. The lock is held.
func (c *Conn) startWriter() {
	if !c.mu.writing && len(c.mu.out) > 0 && c.mu.err == nil {
		go c.write(c.takeOut(), 0, nil)
	}
}

// takeOut makes the caller the one that writes, and is what it has to write. The lock is held.
func (c *Conn) takeOut() []byte {
	out := c.mu.out
	c.mu.out, c.mu.spare = c.mu.spare[:0], nil
	c.mu.acks = 0
	c.mu.writing = true
	return out
}

// wrote ends what takeOut has begun. The lock is held.
func (c *Conn) wrote(out []byte) {
	if c.mu.writing = false; cap(out) <= maxIdleOut || len(c.mu.streams) > 0 {
		c.mu.spare = out[:0]
	}
	c.tellChange()
}

// freeOut gives back what a bulk load has used, if no RPC is under way. The lock is held.
func (c *Conn) freeOut() {
	if len(c.mu.streams) > 0 {
		return
	}
	if cap(c.mu.spare) > maxIdleOut {
		c.mu.spare = nil
	}
	if len(c.mu.out) == 0 && cap(c.mu.out) > maxIdleOut {
		c.mu.out = nil
	}
}

// write writes out from its byte n on, and what waits by then, until nothing does. err is
// that of who wrote the first n.
func (c *Conn) write(out []byte, n int, err error) {
	for err == nil {
		if _, err = c.nc.Write(out[n:]); err != nil {
			break
		}
		n = 0
		c.mu.Lock()
		c.wrote(out)
		if len(c.mu.out) == 0 || c.mu.err != nil {
			c.mu.Unlock()
			return
		}
		out = c.takeOut()
		c.mu.Unlock()
	}
	c.writeFailed(err)
}

// writeFailedGrace is how long the reader has to find out why nothing can be written. What the
// peer has sent before it left is still to be read, answers among it.
const writeFailedGrace = time.Second

// writeFailed refuses new RPCs and leaves the end to the reader. Nobody writes any more.
func (c *Conn) writeFailed(err error) {
	c.mu.Lock()
	if c.mu.goAway == nil {
		c.mu.goAway = err
	}
	c.tellChange()
	c.mu.Unlock()
	time.AfterFunc(writeFailedGrace, func() { c.end(err) })
}
