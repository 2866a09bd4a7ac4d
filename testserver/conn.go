package testserver

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/flightpool/flightpool/internal/memnet"
)

// serverConn is one connection. It has a gRPC server of its own: that alone
// can say GOAWAY to one connection, and it tells every call its connection.
type serverConn struct {
	*memnet.Conn
	id   int
	peer string
	grpc *grpc.Server
	srv  *Server
}

func (s *Server) accept(ctx context.Context) {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		conn := s.newConn(c.(*memnet.Conn))
		s.goroutines.Go(func() { conn.serve(ctx) })
	}
}

func (s *Server) newConn(c *memnet.Conn) *serverConn {
	conn := &serverConn{Conn: c, srv: s, peer: c.RemoteAddr().String(), grpc: grpc.NewServer(s.grpcOpts...)}
	flight.RegisterFlightServiceServer(conn.grpc, newService(s, conn))
	grpc_health_v1.RegisterHealthServer(conn.grpc, s.health)

	s.conns.Lock()
	s.conns.last++
	conn.id = s.conns.last
	s.conns.open[conn] = struct{}{}
	s.conns.Unlock()
	s.ledger.update(func(now *Snapshot) { now.Conns++; now.ConnsOpened++ })
	return conn
}

// serve returns when the connection and all that belonged to it have ended.
func (c *serverConn) serve(ctx context.Context) {
	if c.srv.faults.fire(ctx, faultMoment{on: OnConnect, conn: c}) == nil && ctx.Err() == nil {
		_ = c.grpc.Serve(&oneConn{conn: c, closed: make(chan struct{})})
	} else {
		c.srv.ledger.update(func(now *Snapshot) { now.Refused++ })
	}
	c.grpc.Stop()
	_ = c.Close()

	c.srv.conns.Lock()
	delete(c.srv.conns.open, c)
	c.srv.conns.Unlock()
	c.srv.ledger.update(func(now *Snapshot) { now.Conns-- })
	c.srv.sessions.connEnded(c)
}

// goAway lets calls under way finish and then closes the connection.
func (c *serverConn) goAway() { c.srv.goroutines.Go(c.grpc.GracefulStop) }

func (s *Server) openConns() []*serverConn {
	s.conns.Lock()
	defer s.conns.Unlock()
	all := make([]*serverConn, 0, len(s.conns.open))
	for c := range s.conns.open {
		all = append(all, c)
	}
	return all
}

// oneConn is a listener for one connection that is there already. Its Accept
// blocks after the first until the connection has ended.
type oneConn struct {
	conn   *serverConn
	taken  bool
	once   sync.Once
	closed chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	if !l.taken {
		l.taken = true
		return l.conn.Conn, nil
	}
	select {
	case <-l.conn.Done():
	case <-l.closed:
	}
	return nil, net.ErrClosed
}

func (l *oneConn) Addr() net.Addr { return l.conn.LocalAddr() }

func (l *oneConn) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}
