package adbcpool

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// cutLink gives the client the bytes of its server up to a point, and then the
// end of the connection in one of the ways in which connections end.
type cutLink struct {
	net.Conn
	cutter *cutter

	once   sync.Once
	closed chan struct{}
}

// cutter decides for all links of one client when they are cut.
type cutter struct {
	end error // what a read answers at the cut; nil: nothing, as on a dead link

	mu    sync.Mutex
	armed bool
	left  int // bytes that still arrive
	seen  int // bytes that have arrived since it was armed
}

func (c *cutter) arm(left int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed, c.left, c.seen = true, left, 0
}

func (c *cutter) arrived() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen
}

// admit is how many of n bytes arrive, and whether the link is cut after them.
func (c *cutter) admit(n int) (int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.armed {
		return n, false
	}
	cut := n > c.left
	n = min(n, c.left)
	c.left -= n
	c.seen += n
	return n, cut
}

func (l *cutLink) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	n, cut := l.cutter.admit(n)
	switch {
	case n > 0:
		return n, nil // the cut, if any, comes with the next read
	case !cut:
		return n, err
	case l.cutter.end == nil:
		select {
		case <-l.closed:
			return 0, net.ErrClosed
		case <-time.After(2 * time.Minute): // the kernel gives up
			return 0, os.NewSyscallError("read", syscall.ETIMEDOUT)
		}
	default:
		return 0, l.cutter.end
	}
}

func (l *cutLink) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Conn.Close()
}

// ways are how a connection ends: in good order, as of a process that is
// killed; by a reset; and without a word.
var ways = map[string]error{
	"FIN":     io.EOF,
	"RST":     &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)},
	"silence": nil,
}

const cutSQL = "SELECT * FROM generate(2, 1)"

const cutRows = 2

// cutClient reads the whole result of cutSQL over links that dial gives it, and
// counts its rows. It has a connection ready before it calls arm.
type cutClient func(ctx context.Context, r rig, dial func(context.Context, string) (net.Conn, error), arm func()) (int64, error)

// cutClients are our backends and what they are compared with.
var cutClients = map[string]cutClient{
	"native": readPool("native"),
	"open":   readPool("open"),
	"new": func(ctx context.Context, r rig, dial func(context.Context, string) (net.Conn, error), arm func()) (int64, error) {
		db, err := driverAt("127.0.0.1:1", grpc.WithContextDialer(dial))
		require.NoError(r, err)
		defer func() { require.NoError(r, db.Close()) }()
		p, err := New(ctx, db, flightpool.Config{MaxSize: 1})
		require.NoError(r, err)
		return queryPool(ctx, r, p, arm)
	},
	"arrow-go": func(ctx context.Context, r rig, dial func(context.Context, string) (net.Conn, error), arm func()) (int64, error) {
		c, err := flightsql.NewClient("passthrough:///server", nil, nil, grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(r, err)
		defer func() { _ = c.Close() }()
		_, err = c.GetCatalogs(ctx)
		require.NoError(r, err)
		arm()
		info, err := c.Execute(ctx, cutSQL)
		if err != nil {
			return 0, err
		}
		rows, err := c.DoGet(ctx, info.GetEndpoint()[0].GetTicket())
		if err != nil {
			return 0, err
		}
		defer rows.Release()
		return countRows(rows)
	},
	"adbc": func(ctx context.Context, r rig, dial func(context.Context, string) (net.Conn, error), arm func()) (int64, error) {
		db, err := driverAt("127.0.0.1:1", grpc.WithContextDialer(dial))
		require.NoError(r, err)
		defer func() { require.NoError(r, db.Close()) }()
		c, err := db.Open(ctx)
		require.NoError(r, err)
		defer func() { _ = c.Close() }()
		s, err := c.NewStatement()
		require.NoError(r, err)
		defer func() { _ = s.Close() }()
		require.NoError(r, s.SetSqlQuery(cutSQL))
		arm()
		rows, _, err := s.ExecuteQuery(ctx)
		if err != nil {
			return 0, err
		}
		defer rows.Release()
		return countRows(rows)
	},
}

func readPool(kind string) cutClient {
	return func(ctx context.Context, r rig, dial func(context.Context, string) (net.Conn, error), arm func()) (int64, error) {
		open := flightpool.New
		if kind == "open" {
			open = Open
		}
		p, err := open(ctx, "grpc://127.0.0.1:1", flightpool.Config{MaxSize: 1, Dialer: dial})
		require.NoError(r, err)
		return queryPool(ctx, r, p, arm)
	}
}

func queryPool(ctx context.Context, r rig, p *flightpool.FlightSQLPool, arm func()) (int64, error) {
	defer func() { require.NoError(r, p.Close(context.WithoutCancel(ctx))) }()
	arm()
	res, err := p.QueryWithOptions(ctx, cutSQL, flightpool.QueryOptions{Retry: flightpool.RetryNever})
	if err != nil {
		return 0, err
	}
	defer res.Release()
	return countRows(res)
}

func countRows(rows array.RecordReader) (n int64, err error) {
	for rows.Next() {
		n += rows.RecordBatch().NumRows()
	}
	return n, rows.Err()
}

// TestAResultThatIsCutOffIsNeverShortWithoutAnError cuts the server's bytes at
// every offset of a result by FIN, and for the other backends and ways at every
// 13th. The clients of other makers run beside ours so that a defect of the
// test shows.
func TestAResultThatIsCutOffIsNeverShortWithoutAnError(t *testing.T) { cutEverywhere(t, 13) }

// TestStressOfCutResults is the same at every offset in every way.
func TestStressOfCutResults(t *testing.T) {
	if os.Getenv("STRESS") != "" {
		cutEverywhere(t, 1)
	}
}

func cutEverywhere(t *testing.T, stride int) {
	for client, read := range cutClients {
		for way, end := range ways {
			step := stride
			ours := client != "arrow-go" && client != "adbc"
			if client == "native" && way == "FIN" {
				step = 1
			}
			t.Run(client+"/"+way, func(t *testing.T) {
				t.Parallel()
				inBubble(t, testserver.Strict(), func(r rig) {
					whole := cutAt(r, read, end, 1<<30)
					require.NoError(r, whole.err)
					require.EqualValues(r, cutRows, whole.rows)
					failed := 0
					for offset := 0; offset < whole.arrived; offset += step {
						got := cutAt(r, read, end, offset)
						if got.err == nil {
							require.EqualValues(r, cutRows, got.rows, "cut after %d of %d bytes, and no error", offset, whole.arrived)
							continue
						}
						require.False(r, ours && errors.Is(got.err, io.EOF), "an error that can be taken for the end: %v", got.err)
						failed++
					}
					require.Greater(r, failed*step, whole.arrived/2, "of %d bytes", whole.arrived)
					time.Sleep(time.Hour) // what a driver does behind its Close has ended by then
				})
			})
		}
	}
}

type cutResult struct {
	rows    int64
	err     error
	arrived int // bytes of the result that reached the client
}

// cutAt reads once, over links that end after offset bytes of the result.
func cutAt(r rig, read cutClient, end error, offset int) cutResult {
	c := &cutter{end: end}
	dial := func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := r.server.Dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		return &cutLink{Conn: conn, cutter: c, closed: make(chan struct{})}, nil
	}
	ctx, stop := context.WithTimeout(r.Context(), time.Minute)
	defer stop()
	rows, err := read(ctx, r, dial, func() { c.arm(offset) })
	return cutResult{rows, err, c.arrived()}
}
