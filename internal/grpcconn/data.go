package grpcconn

// beginData finds the stream that data is for, and takes it out of the windows.
func (f *frameReader) beginData() error {
	if err := f.checkStream("DATA"); err != nil {
		return err
	}
	c := f.conn
	f.padding, f.padGiven = 0, f.flags&flagPadded == 0
	c.mu.Lock()
	defer c.mu.Unlock()
	f.data = c.mu.streams[f.stream]
	c.mu.receivedConn += f.left
	if c.mu.receivedConn > c.cfg.ConnWindow {
		return &protocolError{codeFlowControl, "more data than the window of the connection"}
	}
	if c.mu.receivedConn >= c.cfg.ConnWindow/4 {
		c.mu.out = appendWindowUpdate(c.mu.out, 0, c.mu.receivedConn)
		c.mu.receivedConn = 0
		c.startWriter()
	}
	if s := f.data; s != nil {
		if s.window -= f.left; s.window < 0 {
			c.resetStream(s, codeFlowControl, internalStatus("the server has sent more than the stream's window"))
			f.data = nil
		} else if !s.headersCame {
			c.resetStream(s, codeProtocol, internalStatus("the server has sent a message before headers"))
			f.data = nil
		}
	}
	return nil
}

// takeData passes on what has come of the data.
func (f *frameReader) takeData(p []byte) error {
	left := f.left // of the frame, with p
	if !f.padGiven && len(p) > 0 {
		f.padGiven, f.padding = true, int(p[0])
		p, left = p[1:], left-1
		if f.padding > left {
			return &protocolError{codeProtocol, "padding that is longer than its frame"}
		}
	}
	data := min(len(p), max(left-f.padding, 0))
	if f.data == nil {
		return nil
	}
	if err := f.data.receive(p[:data]); err != nil {
		f.giveUp(err)
	}
	return nil
}

// giveUp ends the stream of the data for what is wrong with it.
func (f *frameReader) giveUp(err error) {
	c := f.conn
	c.mu.Lock()
	c.resetStream(f.data, codeCancel, err)
	c.mu.Unlock()
	f.data = nil
}

// finishData looks at the end of a frame with data.
func (f *frameReader) finishData() error {
	if f.flags&flagPadded != 0 && !f.padGiven {
		return &protocolError{codeFrameSize, "a padded frame without a length of the padding"}
	}
	s, c := f.data, f.conn
	f.data = nil
	if s == nil || f.flags&(flagPadded|flagEndStream) == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.flags&flagPadded != 0 {
		s.grant(1 + f.padding)
	}
	if f.flags&flagEndStream != 0 {
		c.resetStream(s, codeNone, internalStatus("the server has ended the stream without trailers"))
	}
	return nil
}
