package pglease_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A wire stands between a pool and the server and sees every statement.
type wire struct {
	listener net.Listener
	running  sync.WaitGroup

	// onQuery is called for each message with statements before it is passed
	// on; it may wait, and say what becomes of it. nil: nothing.
	mu      sync.Mutex
	onQuery func(*query)
	onReady func(conn int) // an answer has come
	conns   map[net.Conn]bool
}

// query is one message on its way to the server.
type query struct {
	conn  int // numbered in the order of their start
	text  string
	pid   uint32 // of the backend
	drop  bool   // the connection breaks before it arrives
	reply int    // it breaks when so many bytes of the answer have come; -1: never
}

// writes reports whether the message replaces a record.
func (q *query) writes() bool {
	return strings.Contains(q.text, "update ") && strings.Contains(q.text, " set record") || strings.Contains(q.text, "insert into")
}

func newWire(t *testing.T) *wire {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &wire{listener: listener, conns: map[net.Conn]bool{}}
	w.running.Go(func() {
		for n := 0; ; n++ {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", server.Addr())
			if err != nil {
				_ = client.Close()
				continue
			}
			w.note(client, upstream)
			w.running.Go(func() { w.serve(n, client, upstream) })
		}
	})
	t.Cleanup(w.close)
	return w
}

func (w *wire) dsn() string {
	return fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", w.listener.Addr())
}

func (w *wire) set(onQuery func(*query)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onQuery = onQuery
}

func (w *wire) ready(n int) {
	w.mu.Lock()
	onReady := w.onReady
	w.mu.Unlock()
	if onReady != nil {
		onReady(n)
	}
}

func (w *wire) note(conns ...net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		w.conns[c] = true
	}
}

func (w *wire) close() {
	_ = w.listener.Close()
	w.mu.Lock()
	for c := range w.conns {
		_ = c.Close()
	}
	w.mu.Unlock()
	w.running.Wait()
}

// answers passes on what the server says until as many bytes have come as the
// latest query allows.
type answers struct {
	mu   sync.Mutex
	left int // -1: no bound
	pid  uint32
}

func (w *wire) serve(n int, client, upstream net.Conn) {
	a := &answers{left: -1}
	both := func() { _, _ = client.Close(), upstream.Close() }
	w.running.Go(func() {
		defer both()
		for {
			kind, body, err := readMessage(upstream, true)
			if err != nil {
				return
			}
			a.mu.Lock()
			if kind[0] == 'K' {
				a.pid = binary.BigEndian.Uint32(body[4:])
			}
			whole := append(kind, body...)
			pass := len(whole)
			if a.left >= 0 {
				pass = min(pass, a.left)
				a.left -= pass
			}
			a.mu.Unlock()
			if kind[0] == 'Z' {
				w.ready(n)
			}
			if _, err := client.Write(whole[:pass]); err != nil || pass < len(whole) {
				return
			}
		}
	})
	defer both()
	for typed := false; ; typed = true {
		kind, body, err := readMessage(client, typed)
		if err != nil {
			return
		}
		if len(kind) > 0 && kind[0] == 'Q' && !w.ask(n, a, string(body[4:len(body)-1])) {
			return
		}
		if _, err := upstream.Write(append(kind, body...)); err != nil {
			return
		}
	}
}

// ask lets the test decide on a message.
func (w *wire) ask(n int, a *answers, text string) (pass bool) {
	w.mu.Lock()
	onQuery := w.onQuery
	w.mu.Unlock()
	a.mu.Lock()
	q := &query{conn: n, text: text, pid: a.pid, reply: -1}
	a.mu.Unlock()
	if onQuery != nil {
		onQuery(q)
	}
	a.mu.Lock()
	a.left = q.reply
	a.mu.Unlock()
	return !q.drop
}

// readMessage reads one message: its kind, if it has one, and its length and
// body.
func readMessage(from io.Reader, typed bool) (kind, body []byte, err error) {
	if typed {
		kind = make([]byte, 1)
		if _, err := io.ReadFull(from, kind); err != nil {
			return nil, nil, err
		}
	}
	body = make([]byte, 4)
	if _, err := io.ReadFull(from, body); err != nil {
		return nil, nil, err
	}
	rest := make([]byte, binary.BigEndian.Uint32(body)-4)
	_, err = io.ReadFull(from, rest)
	return kind, append(body, rest...), err
}
