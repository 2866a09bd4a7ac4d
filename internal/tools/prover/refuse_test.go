package prover

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"path"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/flightpool/flightpool/internal/memnet"
)

// refusals stand between the pool and the server as an HTTP/2 proxy does, and answer RPCs by REFUSED_STREAM:
// before the server has heard of them, as the word means, or in place of the server's own answer, as HAProxy does
// when its server closes the connection.
type refusals struct {
	dial func(ctx context.Context, addr string) (net.Conn, error)
	mu   sync.Mutex // guards what follows
	set  []refusal
}

// refusal is the text of a step: refuse RPC before|after SKIP.
type refusal struct {
	rpc   string // as in HTTP's path, or any
	after bool
	skip  int // so many pass before
}

func (r *refusals) add(one refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set = append(r.set, one)
}

func (r *refusals) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set = nil
}

// take is the fate of an RPC that begins.
func (r *refusals) take(rpc string) (refused, after bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, one := range r.set {
		switch {
		case one.rpc != "any" && one.rpc != rpc:
		case one.skip > 0:
			r.set[i].skip--
		default:
			r.set = append(r.set[:i:i], r.set[i+1:]...)
			return true, one.after
		}
	}
	return false, false
}

// Dial connects through the proxy.
func (r *refusals) Dial(ctx context.Context, addr string) (net.Conn, error) {
	server, err := r.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	l := memnet.New("proxy")
	go func() {
		defer func() { _ = server.Close() }()
		client, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = client.Close() }()
		p := &proxied{refusals: r, client: newLeg(client), server: newLeg(server), streams: map[uint32]fate{}}
		p.run()
	}()
	client, err := l.Dial(ctx, addr)
	if err != nil {
		_ = l.Close()
	}
	return client, err
}

// fate is what a stream of one connection has to expect.
type fate uint8

const (
	passes   fate = iota
	refused       // the server has not heard of it
	silenced      // its answer is taken away
)

// proxied is one connection of the client's, and one to the server.
type proxied struct {
	*refusals
	client, server *leg
	mu             sync.Mutex // guards streams
	streams        map[uint32]fate
}

func (p *proxied) of(stream uint32) fate {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.streams[stream]
}

func (p *proxied) become(stream uint32, f fate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams[stream] = f
}

// run passes frames on until one side is gone, and ends the other.
func (p *proxied) run() {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(p.client.conn, preface); err != nil {
		return
	}
	if _, err := p.server.conn.Write(preface); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.pump(p.client, p.server, p.fromClient) })
	both.Go(func() { p.pump(p.server, p.client, p.fromServer) })
	both.Wait()
}

func (p *proxied) pump(from, to *leg, pass func(http2.Frame) (bool, error)) {
	defer func() { _, _ = from.conn.Close(), to.conn.Close() }()
	for {
		f, err := from.framer.ReadFrame()
		if err != nil {
			return
		}
		on, err := pass(f)
		if on && err == nil {
			err = to.write(f)
		}
		if err != nil {
			return
		}
	}
}

// fromClient reports whether a frame of the client's is for the server.
func (p *proxied) fromClient(f http2.Frame) (bool, error) {
	id := f.Header().StreamID
	if h, ok := f.(*http2.MetaHeadersFrame); ok {
		if is, after := p.take(path.Base(h.PseudoValue("path"))); is && after {
			p.become(id, silenced)
		} else if is {
			p.become(id, refused)
			return false, p.client.refuse(id)
		}
	}
	if p.of(id) != refused {
		return true, nil
	}
	if d, ok := f.(*http2.DataFrame); ok && len(d.Data()) > 0 {
		return false, p.client.giveBack(uint32(len(d.Data())))
	}
	return false, nil
}

// fromServer reports whether a frame of the server's is for the client.
func (p *proxied) fromServer(f http2.Frame) (bool, error) {
	id := f.Header().StreamID
	if p.of(id) != silenced {
		return true, nil
	}
	switch f := f.(type) {
	case *http2.DataFrame:
		if n := uint32(len(f.Data())); n > 0 { //nolint:gosec // of one frame
			if err := p.server.giveBack(n); err != nil || f.StreamEnded() {
				return false, err
			}
			return false, p.server.giveBackOf(id, n)
		}
	case *http2.MetaHeadersFrame:
		if f.StreamEnded() {
			return false, p.client.refuse(id)
		}
	case *http2.RSTStreamFrame:
		return false, p.client.refuse(id)
	}
	return false, nil
}

// leg is one side's connection.
type leg struct {
	conn   net.Conn
	framer *http2.Framer // read by one goroutine
	mu     sync.Mutex    // orders writes, and guards what follows
	block  bytes.Buffer
	packer *hpack.Encoder
}

func newLeg(c net.Conn) *leg {
	l := &leg{conn: c, framer: http2.NewFramer(c, c)}
	l.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	l.packer = hpack.NewEncoder(&l.block)
	l.packer.SetMaxDynamicTableSize(0)
	return l
}

func (l *leg) refuse(stream uint32) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.framer.WriteRSTStream(stream, http2.ErrCodeRefusedStream)
}

// giveBack lets the connection's other side send as much as was dropped.
func (l *leg) giveBack(n uint32) error { return l.giveBackOf(0, n) }

func (l *leg) giveBackOf(stream, n uint32) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.framer.WriteWindowUpdate(stream, n)
}

// write passes on a frame that was read on the other side.
func (l *leg) write(f http2.Frame) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := f.Header().StreamID
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		l.block.Reset()
		for _, h := range f.Fields {
			if err := l.packer.WriteField(h); err != nil {
				return err
			}
		}
		return l.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: l.block.Bytes(), EndHeaders: true, EndStream: f.StreamEnded()})
	case *http2.DataFrame:
		return l.framer.WriteData(id, f.StreamEnded(), f.Data())
	case *http2.SettingsFrame:
		if f.IsAck() {
			return l.framer.WriteSettingsAck()
		}
		var all []http2.Setting
		_ = f.ForeachSetting(func(s http2.Setting) error {
			if s.ID != http2.SettingHeaderTableSize { // each side packs its own
				all = append(all, s)
			}
			return nil
		})
		return l.framer.WriteSettings(all...)
	case *http2.PingFrame:
		return l.framer.WritePing(f.IsAck(), f.Data)
	case *http2.RSTStreamFrame:
		return l.framer.WriteRSTStream(id, f.ErrCode)
	case *http2.WindowUpdateFrame:
		return l.framer.WriteWindowUpdate(id, f.Increment)
	case *http2.GoAwayFrame:
		return l.framer.WriteGoAway(f.LastStreamID, f.ErrCode, f.DebugData())
	default:
		return fmt.Errorf("proxy: no word for a frame %T", f)
	}
}

// refuse is the step.
func (w *world) refuse(s step) {
	w.refusals.add(refusal{rpc: s.arg(0), after: s.arg(1) == "after", skip: int(s.num(2))})
}
