package grpcconn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// limits are what the peer's settings say.
type limits struct {
	window     int64 // of a new stream
	maxFrame   int
	maxStreams int64

	maxHeaderList uint32 // bytes, as HTTP/2 counts them
}

var defaultLimits = limits{window: initialWindow, maxFrame: minMaxFrame, maxStreams: math.MaxInt64, maxHeaderList: math.MaxUint32}

// maxAcks is how many answers to a peer's frames may wait to be written: a peer that asks and
// does not read would fill the memory with them.
const maxAcks = 1000

var errTooManyAcks = &protocolError{codeEnhanceYourCalm, "the server asks for answers that it does not read"}

// takeSettings takes the peer's settings and confirms them.
func (c *Conn) takeSettings(flags byte, stream uint32, p []byte) error {
	switch {
	case stream != 0:
		return &protocolError{codeProtocol, "SETTINGS of a stream"}
	case flags&flagAck != 0:
		return nil
	case len(p)%6 != 0:
		return &protocolError{codeFrameSize, "SETTINGS of another length"}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for ; len(p) > 0; p = p[6:] {
		s := setting{settingID(binary.BigEndian.Uint16(p)), binary.BigEndian.Uint32(p[2:])}
		if err := c.apply(s); err != nil {
			return err
		}
	}
	if c.mu.acks++; c.mu.acks > maxAcks {
		return errTooManyAcks
	}
	c.mu.out = appendFrameHeader(c.mu.out, 0, frameSettings, flagAck, 0)
	c.startWriter()
	c.tellChange()
	if !c.mu.gotReady {
		c.mu.gotReady = true
		close(c.ready)
	}
	return nil
}

// apply is takeSettings for one. The lock is held.
func (c *Conn) apply(s setting) error {
	switch s.id {
	case settingHeaderTable:
		c.mu.encoder.SetMaxDynamicTableSizeLimit(s.value)
	case settingMaxStreams:
		c.mu.peer.maxStreams = int64(s.value)
	case settingMaxHeaderList:
		c.mu.peer.maxHeaderList = s.value
	case settingMaxFrame:
		if s.value < minMaxFrame || s.value > 1<<24-1 {
			return &protocolError{codeProtocol, fmt.Sprintf("SETTINGS: frames of at most %d bytes", s.value)}
		}
		c.mu.peer.maxFrame = min(int(s.value), maxFrameSent)
	case settingInitialWindow:
		if s.value > maxWindow {
			return &protocolError{codeFlowControl, fmt.Sprintf("SETTINGS: a window of %d bytes", s.value)}
		}
		more := int64(s.value) - c.mu.peer.window
		c.mu.peer.window = int64(s.value)
		for _, stream := range c.mu.streams {
			if stream.sendWindow += more; stream.sendWindow > maxWindow {
				return &protocolError{codeFlowControl, "SETTINGS: a window that is too large"}
			}
		}
	default:
	}
	return nil
}

// takeWindowUpdate lets more be sent.
func (c *Conn) takeWindowUpdate(id uint32, p []byte) error {
	if len(p) != 4 {
		return &protocolError{codeFrameSize, "WINDOW_UPDATE of another length"}
	}
	n := int64(binary.BigEndian.Uint32(p) &^ (1 << 31))
	c.mu.Lock()
	defer c.mu.Unlock()
	if id == 0 {
		if c.mu.sendWindow += n; n == 0 || c.mu.sendWindow > maxWindow {
			return &protocolError{codeFlowControl, "WINDOW_UPDATE of nothing, or of too much"}
		}
		c.tellChange()
		return nil
	}
	if s := c.mu.streams[id]; s != nil {
		if s.sendWindow += n; n == 0 || s.sendWindow > maxWindow {
			c.resetStream(s, codeFlowControl, internalStatus("the server has given a window of nothing, or of too much"))
		}
		c.tellChange()
	}
	return nil
}

// takePing answers a ping, or takes note of an answer.
func (c *Conn) takePing(flags byte, stream uint32, p []byte) error {
	if len(p) != 8 || stream != 0 {
		return &protocolError{codeFrameSize, "PING of another form"}
	}
	if flags&flagAck != 0 {
		return nil // that something has come is all there is to know
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.acks++; c.mu.acks > maxAcks {
		return errTooManyAcks
	}
	c.mu.out = appendPing(c.mu.out, flagAck, [8]byte(p))
	c.startWriter()
	return nil
}

// takeGoAway ends what the server has not processed and lets the rest come to its end. No
// RPC begins any more; with the last the connection ends.
func (c *Conn) takeGoAway(stream uint32, p []byte) error {
	if len(p) < 8 || stream != 0 {
		return &protocolError{codeFrameSize, "GOAWAY of another form"}
	}
	last := binary.BigEndian.Uint32(p) &^ (1 << 31)
	text := fmt.Sprintf("the server lets no call begin on the connection (GOAWAY, code %d)", binary.BigEndian.Uint32(p[4:]))
	if debug := p[8:]; len(debug) > 0 {
		text += fmt.Sprintf(": %.200q", debug)
	}
	c.mu.Lock()
	if c.mu.goAway == nil {
		c.mu.goAway = errors.New(text)
	}
	reason, ends := c.mu.goAway, false
	for id := range c.mu.streams {
		ends = ends || id > last
	}
	c.tellChange() // who waits to begin fails
	c.mu.Unlock()
	if ends {
		c.cfg.OnEnd(reason) // before an RPC hears of it; none begins meanwhile
		c.disown(last, reason)
	}
	return c.drained()
}

// disown ends the RPCs behind the last that the server processes.
func (c *Conn) disown(last uint32, reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, s := range c.mu.streams {
		if id > last {
			s.finish(lostStatus(reason), true)
			c.frames.wakeLater(s)
		}
	}
}

// drained is why the connection ends now: no RPC may begin any more, and none is left. Close
// ends it itself, when it has told the server.
func (c *Conn) drained() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.streams) > 0 || errors.Is(c.mu.goAway, errClosed) {
		return nil
	}
	return c.mu.goAway
}
