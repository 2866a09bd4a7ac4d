package flightconn

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
)

// textStatements is a server like Arrow's reference server in Java: the handle of a prepared statement is its text, so
// that equal texts of all connections are one statement, whose parameters are those that were sent last. Each step of an
// execution takes a second.
type textStatements struct {
	fake
	refuse   func(text string) error  // to prepare it
	handle   func(text string) string // nil: the text
	closing  func() error             // before a statement is closed
	mu       sync.Mutex
	params   map[string]int // by the text
	stored   []int
	prepared []string // texts, in their order
	executed []string
	open     map[string]bool
}

func newTextStatements() *textStatements {
	s := &textStatements{params: map[string]int{}, open: map[string]bool{}}
	s.action = s.createOrClose
	s.put = s.bindOrUpdate
	s.info = func(_ context.Context, d *pb.FlightDescriptor) (*pb.FlightInfo, error) {
		if isProbe(d) {
			return &pb.FlightInfo{}, nil
		}
		var cmd pb.CommandPreparedStatementQuery
		if err := unpack(d.GetCmd(), &cmd); err != nil {
			return nil, err
		}
		time.Sleep(time.Second)
		return answer(int64Schema, string(cmd.GetPreparedStatementHandle())), nil
	}
	s.get = func(t *pb.Ticket, out pb.FlightService_DoGetServer) error {
		n := s.param(string(t.GetTicket()))
		return sendValues(out, n, n+1)
	}
	return s
}

func (s *textStatements) createOrClose(a *pb.Action, out pb.FlightService_DoActionServer) error {
	var create pb.ActionCreatePreparedStatementRequest
	var closed pb.ActionClosePreparedStatementRequest
	switch {
	case unpack(a.GetBody(), &create) == nil:
		text := create.GetQuery()
		if s.refuse != nil {
			if err := s.refuse(text); err != nil {
				return err
			}
		}
		handle := text
		if s.handle != nil {
			handle = s.handle(text)
		}
		s.mu.Lock()
		s.prepared = append(s.prepared, text)
		s.open[handle] = true
		s.mu.Unlock()
		return out.Send(&pb.Result{Body: pack(&pb.ActionCreatePreparedStatementResult{PreparedStatementHandle: []byte(handle)})})
	case unpack(a.GetBody(), &closed) == nil:
		if s.closing != nil {
			if err := s.closing(); err != nil {
				return err
			}
		}
		if err := out.Context().Err(); err != nil { // as if it had been cancelled
			return err
		}
		s.mu.Lock()
		delete(s.open, string(closed.GetPreparedStatementHandle()))
		s.mu.Unlock()
	}
	return nil
}

// stillOpen is what was prepared and not closed.
func (s *textStatements) stillOpen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.open))
}

// param is the parameter with which a text is executed.
func (s *textStatements) param(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.executed = append(s.executed, text)
	return s.params[text]
}

func (s *textStatements) bindOrUpdate(in pb.FlightService_DoPutServer) error {
	first, err := in.Recv()
	if err != nil {
		return err
	}
	var query pb.CommandPreparedStatementQuery
	var update pb.CommandPreparedStatementUpdate
	isUpdate := unpack(first.GetFlightDescriptor().GetCmd(), &query) != nil
	text := string(query.GetPreparedStatementHandle())
	if isUpdate {
		if err := unpack(first.GetFlightDescriptor().GetCmd(), &update); err != nil {
			return err
		}
		text = string(update.GetPreparedStatementHandle())
	}
	got, err := take(&begun{FlightService_DoPutServer: in, first: first})
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(got.rows[0])
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.params[text] = n
	s.mu.Unlock()
	if !isUpdate {
		return nil
	}
	time.Sleep(time.Second)
	n = s.param(text)
	s.mu.Lock()
	s.stored = append(s.stored, n)
	s.mu.Unlock()
	return in.Send(&pb.PutResult{AppMetadata: marshal(&pb.DoPutUpdateResult{RecordCount: 1})})
}

// textBubble is inBubble for such a server.
func textBubble(t *testing.T, test func(b *bubble, s *textStatements)) {
	s := newTextStatements()
	inBubble(t, &s.fake, func(b *bubble) { test(b, s) })
}

// prepareText prepares a text on a connection of its own.
func (b *bubble) prepareText(sql string) backend.Prepared {
	p, err := b.open().Prepare(b.Context(), sql, backend.Call{})
	require.NoError(b, err)
	return p
}

func oneText(n int) arrow.RecordBatch { return texts(strconv.Itoa(n)) }

// requireUnique requires that none of the texts is sql, and that all are it with a comment of their own behind.
func requireUnique(t testing.TB, sql string, texts []string) {
	t.Helper()
	for _, text := range texts {
		require.Regexp(t, "^"+regexp.QuoteMeta(sql)+`\n/\* [A-Z2-7]{26} \*/$`, text)
	}
	sorted := slices.Sorted(slices.Values(texts))
	require.Len(t, slices.Compact(sorted), len(texts), "each has its own")
}

// Whoever has parameters of an equal text waits for nobody, and gets rows for them.
func TestNobodyGetsTheRowsOfAnothersParameters(t *testing.T) {
	const callers = 5
	textBubble(t, func(b *bubble, server *textStatements) {
		start := time.Now()
		var wg sync.WaitGroup
		for n := range callers {
			p := b.prepareText("select ?")
			wg.Go(func() {
				batch := oneText(n)
				defer batch.Release()
				s, err := p.Query(b.Context(), batch, backend.Call{})
				if err != nil {
					b.Error(err)
					return
				}
				if got := fmt.Sprint(values(b, s)); got != fmt.Sprintf("[%d]", n) {
					b.Errorf("the rows of %d are %s", n, got)
				}
			})
		}
		wg.Wait()
		require.Equal(b, time.Second, time.Since(start))
		requireUnique(b, "select ?", server.executed)
	})
}

func TestNoChangeIsMadeWithAnothersParameters(t *testing.T) {
	textBubble(t, func(b *bubble, server *textStatements) {
		want := []int{}
		var wg sync.WaitGroup
		for n := range 5 {
			want = append(want, n)
			p := b.prepareText("insert ?")
			wg.Go(func() {
				batch := oneText(n)
				defer batch.Release()
				if _, err := p.Update(b.Context(), batch, backend.Call{}); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
		require.ElementsMatch(b, want, server.stored)
		requireUnique(b, "insert ?", server.executed)
	})
}

// The first preparing shows how the server names statements, and leaves none by its text. From the second on it is one
// round trip. A text may end in a comment.
func TestATextThatIsItsHandleIsMadeUnique(t *testing.T) {
	const sql = "select 1 -- one"
	textBubble(t, func(b *bubble, server *textStatements) {
		first := b.prepareText(sql)
		require.Len(b, server.prepared, 2)
		require.Equal(b, sql, server.prepared[0])
		second := b.prepareText(sql)
		require.Len(b, server.prepared, 3)
		requireUnique(b, sql, server.prepared[1:])
		require.ElementsMatch(b, server.prepared[1:], server.stillOpen())
		require.NotEqual(b, first.(backend.HandleNamer).Handle(), second.(backend.HandleNamer).Handle())

		require.NoError(b, first.Close(b.Context()))
		require.Equal(b, server.prepared[2:], server.stillOpen(), "the other's is its own")
		require.NoError(b, second.Close(b.Context()))
		require.Empty(b, server.stillOpen())
	})
}

// Of many at once one finds out, and the others wait for that, but not for long. Each gets its own all the same.
func TestManyPreparingsMayBeTheFirst(t *testing.T) {
	for _, c := range []struct {
		answer   time.Duration
		prepared int
		within   time.Duration
	}{
		{100 * time.Millisecond, 6, 300 * time.Millisecond}, // the first, its closing, and all
		{time.Second, 10, 3*time.Second + harmlessTimeout},
	} {
		textBubble(t, func(b *bubble, server *textStatements) {
			server.refuse = func(string) error { time.Sleep(c.answer); return nil }
			server.closing = func() error { time.Sleep(c.answer); return nil }
			start := time.Now()
			var wg sync.WaitGroup
			for range 5 {
				conn := b.open()
				wg.Go(func() {
					if _, err := conn.Prepare(b.Context(), "select 1", backend.Call{}); err != nil {
						b.Error(err)
					}
				})
			}
			wg.Wait()
			require.Len(b, server.prepared, c.prepared)
			require.LessOrEqual(b, time.Since(start), c.within)
			requireUnique(b, "select 1", server.prepared[c.prepared-5:])
			require.ElementsMatch(b, server.prepared[c.prepared-5:], server.stillOpen())
		})
	}
}

// Once it is known, nobody waits, and who has left does not.
func TestWhoWaitsForTheFirstPreparingMayLeave(t *testing.T) {
	textBubble(t, func(b *bubble, server *textStatements) {
		server.refuse = func(text string) error {
			if text == "slow" {
				time.Sleep(time.Second)
			}
			return nil
		}
		server.handle = func(text string) string { return "handle of " + text }
		slow, other := b.open(), b.open()
		done := make(chan error, 1)
		go func() { _, err := slow.Prepare(b.Context(), "slow", backend.Call{}); done <- err }()
		synctest.Wait()

		ctx, stop := context.WithTimeout(b.Context(), 100*time.Millisecond)
		defer stop()
		start := time.Now()
		_, err := other.Prepare(ctx, "fast", backend.Call{})
		require.Equal(b, 100*time.Millisecond, time.Since(start))
		e := failure(b, err)
		require.Equal(b, backend.StagePrepare, e.Stage)
		require.Equal(b, backend.FaultContext, e.Fault)
		require.True(b, e.Unsent)

		start = time.Now()
		_, err = other.Prepare(b.Context(), "fast", backend.Call{})
		require.NoError(b, err)
		require.Equal(b, harmlessTimeout, time.Since(start))
		_, err = other.Prepare(b.Context(), "fast", backend.Call{})
		require.NoError(b, err)
		require.Equal(b, harmlessTimeout, time.Since(start))
		require.NoError(b, <-done)
	})
}

// A handle that is something else means nothing; where it once was the text, that may be so of the text with a comment alone.
func TestOnlyATextThatIsItsHandleIsMadeUnique(t *testing.T) {
	textBubble(t, func(b *bubble, server *textStatements) {
		server.handle = func(text string) string { return "handle of " + text }
		b.prepareText("select 1")
		b.prepareText("select 1")
		require.Equal(b, []string{"select 1", "select 1"}, server.prepared)

		server.handle = func(text string) string {
			if text == "select 2" {
				return text
			}
			return strconv.Itoa(len(server.prepared))
		}
		b.prepareText("select 2")
		b.prepareText("select 2")
		requireUnique(b, "select 2", server.prepared[3:])
		require.Len(b, server.prepared, 5)
	})
}

// A text that is none of SQL means what it says, and has no comments: names of what a server has, or its own commands.
func TestOnlySQLGetsAComment(t *testing.T) {
	textBubble(t, func(b *bubble, s *textStatements) {
		for _, sql := range []string{"sales/2026", "select 1", "sales/2026", "refresh_all"} {
			p := b.prepareText(sql)
			rows, err := p.Query(b.Context(), nil, backend.Call{})
			require.NoError(b, err)
			rows.Close()
			require.NoError(b, p.Close(b.Context()))
		}
		require.Equal(b, []string{"sales/2026", "select 1"}, s.prepared[:2])
		require.Regexp(b, `^select 1\n/\* [A-Z2-7]+ \*/$`, s.prepared[2])
		require.Equal(b, []string{"sales/2026", "refresh_all"}, s.prepared[3:])
	})
}

// Those who have waited for the first statement of an endpoint do not wait for each other.
func TestTheFirstStatementAloneIsWaitedFor(t *testing.T) {
	textBubble(t, func(b *bubble, server *textStatements) {
		var handles atomic.Int64
		server.handle = func(string) string { return fmt.Sprint("statement ", handles.Add(1)) }
		server.refuse = func(string) error { time.Sleep(100 * time.Millisecond); return nil }
		c := b.open()
		start := time.Now()
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if _, err := c.Prepare(b.Context(), "select 1", backend.Call{}); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
		require.Equal(b, 200*time.Millisecond, time.Since(start))
	})
}
