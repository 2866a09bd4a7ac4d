package adbcpool

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// scissors cut one link of a client, the one that carries the byte at offset
// in the given direction. Links that are dialled later are whole.
type scissors struct {
	way    string
	write  bool // of the client's bytes; else of the server's
	offset int

	mu   sync.Mutex
	seen int
	used bool
}

// admit is how many of n bytes pass, and whether the link is cut after them.
func (s *scissors) admit(n int) (int, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used || s.seen+n <= s.offset {
		s.seen += n
		return n, false
	}
	s.used = true
	return s.offset - s.seen, true
}

func (s *scissors) total() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// link is a client's end of a connection that scissors may cut.
type link struct {
	net.Conn
	by     *scissors
	once   sync.Once
	closed chan struct{}

	mu  sync.Mutex
	cut bool
}

func (l *link) isCut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut
}

// sever cuts the link. The server learns of it unless the link just dies.
func (l *link) sever() {
	l.mu.Lock()
	l.cut = true
	l.mu.Unlock()
	if ways[l.by.way] != nil {
		_ = l.Conn.Close()
	}
}

// afterCut is what a read answers on a link that is cut.
func (l *link) afterCut() error {
	if err := ways[l.by.way]; err != nil {
		return err
	}
	select {
	case <-l.closed:
		return net.ErrClosed
	case <-time.After(2 * time.Minute): // the kernel gives up
		return os.ErrDeadlineExceeded
	}
}

func (l *link) Read(p []byte) (int, error) {
	if l.isCut() {
		return 0, l.afterCut()
	}
	n, err := l.Conn.Read(p)
	if l.isCut() { // meanwhile, by a write
		return 0, l.afterCut()
	}
	if l.by.write || n == 0 {
		return n, err
	}
	n, cut := l.by.admit(n)
	if cut {
		l.sever()
		if n == 0 {
			return 0, l.afterCut()
		}
	}
	return n, nil
}

func (l *link) Write(p []byte) (int, error) {
	n, cut := len(p), false
	if l.isCut() {
		n = 0
	} else if l.by.write {
		n, cut = l.by.admit(n)
	}
	if n > 0 {
		if n, err := l.Conn.Write(p[:n]); err != nil {
			return n, err
		}
	}
	if cut {
		l.sever()
	}
	if n == len(p) || ways[l.by.way] == nil { // what is lost without a word was sent
		return len(p), nil
	}
	return n, ways["RST"]
}

func (l *link) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Conn.Close()
}

// life is what a program that used everything once was told.
type life struct {
	pool   error
	commit error // of a transaction of three changes, or why it did not come to that
	asked  bool  // Commit was called
	alone  error // a change outside of a transaction
	read   error
	rows   int64
}

const closeWithin = 10 * time.Second

// live goes through all that a program does with a server. The values that it
// stores begin with number*10.
func live(ctx context.Context, r rig, kind string, dial func(context.Context, string) (net.Conn, error), number int) (l life) {
	open := flightpool.New
	if kind == "open" {
		open = Open
	}
	p, err := open(ctx, "grpc://127.0.0.1:1", flightpool.Config{MaxSize: 2, Dialer: dial, Auth: flightpool.BasicAuth("user", "password")})
	if l.pool = err; err != nil {
		return l
	}
	defer func() {
		began := time.Now()
		limit, stop := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
		defer stop()
		_ = p.Close(limit) // calls on a silent link are cut at its deadline
		require.LessOrEqual(r, time.Since(began), closeWithin+5*time.Second, "CloseTimeout is 5s")
	}()
	l.asked, l.commit = transaction(ctx, p, number)
	_, l.alone = p.Update(ctx, fmt.Sprintf("INSERT INTO t VALUES (%d)", number*10+9))
	res, err := p.QueryWithOptions(ctx, cutSQL, flightpool.QueryOptions{Retry: flightpool.RetryNever})
	if l.read = err; err == nil {
		l.rows, l.read = countRows(res)
		res.Release()
	}
	return l
}

// transaction makes a change by text, one by a prepared statement and one by a
// bulk load, and reads on the way.
func transaction(ctx context.Context, p *flightpool.FlightSQLPool, number int) (asked bool, err error) {
	s, err := p.AcquireSession(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = s.Close() }()
	if err := s.BeginTransaction(ctx); err != nil {
		return false, err
	}
	change := func() error {
		if _, err := s.Update(ctx, fmt.Sprintf("INSERT INTO t VALUES (%d)", number*10+1)); err != nil {
			return err
		}
		q, err := s.PrepareQuery(ctx, "INSERT INTO t VALUES (?)")
		if err != nil {
			return err
		}
		batch := oneNumber(int64(number*10 + 2))
		if _, err := q.Update(ctx, batch); err != nil {
			return err
		}
		if err := q.Close(ctx); err != nil {
			return err
		}
		batch = oneNumber(int64(number*10 + 3))
		rows, err := array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch})
		if err != nil {
			return err
		}
		_, err = s.Ingest(ctx, "t", rows, backend.IngestOptions{Mode: backend.IngestAppend})
		return err
	}
	if err := change(); err != nil {
		_ = s.Rollback(ctx)
		return false, err
	}
	return true, s.Commit(ctx)
}

func oneNumber(n int64) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil))
	defer b.Release()
	b.Field(0).(*array.Int64Builder).Append(n)
	return b.NewRecordBatch()
}

// TestALifeThatIsCutAnywhereIsToldTheTruth cuts one link of a pool at many
// offsets of all that server and client say to each other: handshake, proof,
// BEGIN, a change, a prepared one, a bulk load, COMMIT, a change and a read of
// their own, the end of the sessions. What the program was told is compared
// with what the server has stored.
func TestALifeThatIsCutAnywhereIsToldTheTruth(t *testing.T) { cutLives(t, 307) }

// TestStressOfCutLives is the same at every offset.
func TestStressOfCutLives(t *testing.T) {
	if os.Getenv("STRESS") != "" {
		cutLives(t, 1)
	}
}

func cutLives(t *testing.T, stride int) {
	for _, kind := range []string{"native", "open"} {
		for way := range ways {
			for _, write := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/write=%v", kind, way, write), func(t *testing.T) {
					t.Parallel()
					inBubble(t, testserver.Strict(), func(r rig) {
						judge := r.pool("native")
						_, err := judge.Update(r.Context(), "CREATE TABLE t (n BIGINT)")
						require.NoError(r, err)
						number := 1
						at := func(offset int) (life, *scissors) {
							s := &scissors{way: way, write: write, offset: offset}
							ctx, stop := context.WithTimeout(r.Context(), time.Minute)
							defer stop()
							l := live(ctx, r, kind, s.dial(r), number)
							time.Sleep(5 * time.Minute) // what goes on behind the pool's Close has ended by then
							l.judge(r, stored(r, judge, number), offset)
							number++
							return l, s
						}
						whole, s := at(1 << 30)
						require.Equal(r, life{asked: true, rows: cutRows}, whole)
						failed := 0
						for offset := number % stride; offset < s.total(); offset += stride {
							if l, _ := at(offset); l.pool != nil || l.commit != nil || l.alone != nil || l.read != nil {
								failed++
							}
						}
						require.Positive(r, failed)
						t.Logf("%d lives over %d bytes, %d with an error", number-1, s.total(), failed)
					})
				})
			}
		}
	}
}

func (s *scissors) dial(r rig) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := r.server.Dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		return &link{Conn: conn, by: s, closed: make(chan struct{})}, nil
	}
}

// stored is what the server has of a life, without its number.
func stored(r rig, judge *flightpool.FlightSQLPool, number int) (got []int64) {
	res, err := judge.Query(r.Context(), "SELECT * FROM t")
	require.NoError(r, err)
	defer res.Release()
	for res.Next() {
		for _, n := range res.RecordBatch().Column(0).(*array.Int64).Int64Values() {
			if n/10 == int64(number) {
				got = append(got, n%10)
			}
		}
	}
	require.NoError(r, res.Err())
	slices.Sort(got)
	return got
}

// judge compares what the program was told with what the server has stored.
func (l life) judge(r rig, got []int64, offset int) {
	r.Helper()
	at := func(format string, args ...any) string {
		return fmt.Sprintf("cut at %d: %s (%+v)", offset, fmt.Sprintf(format, args...), l)
	}
	if l.pool != nil {
		require.Empty(r, got, at("nothing was sent"))
		return
	}
	alone := 0
	for len(got) > 0 && got[len(got)-1] == 9 {
		got = got[:len(got)-1]
		alone++
	}
	switch {
	case l.alone == nil:
		require.Equal(r, 1, alone, at("the change alone"))
	case flightpool.SafeToRetry(l.alone):
		require.Zero(r, alone, at("the change alone"))
	default:
		require.LessOrEqual(r, alone, 1, at("the change alone"))
	}
	all := []int64{1, 2, 3}
	switch {
	case l.commit == nil:
		require.Equal(r, all, got, at("committed"))
	case l.asked && errors.Is(l.commit, backend.ErrCommitUnknown) && len(got) > 0:
		require.Equal(r, all, got, at("all or nothing"))
	default:
		require.Empty(r, got, at("not committed"))
	}
	if l.read == nil {
		require.EqualValues(r, cutRows, l.rows, at("a short result"))
	}
}
