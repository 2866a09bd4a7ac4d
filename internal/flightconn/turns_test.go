package flightconn

import (
	"context"
	"fmt"
	"strconv"
	"sync"
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
	mu     sync.Mutex
	params map[string]int // by the text
	stored []int
}

func newTextStatements() *textStatements {
	s := &textStatements{params: map[string]int{}}
	s.action = func(a *pb.Action, out pb.FlightService_DoActionServer) error {
		var req pb.ActionCreatePreparedStatementRequest
		if a.GetType() != "CreatePreparedStatement" {
			return nil
		}
		if err := unpack(a.GetBody(), &req); err != nil {
			return err
		}
		return out.Send(&pb.Result{Body: pack(&pb.ActionCreatePreparedStatementResult{PreparedStatementHandle: []byte(req.GetQuery())})})
	}
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

func (s *textStatements) param(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
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
	s.mu.Lock()
	s.stored = append(s.stored, s.params[text])
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

func TestNobodyGetsTheRowsOfAnothersParameters(t *testing.T) {
	const callers = 5
	textBubble(t, func(b *bubble, _ *textStatements) {
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
		require.Empty(b, b.endpoint.turns.mu.byHandle)
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
	})
}

// Other texts, and executions without parameters, wait for nobody.
func TestOnlyEqualTextsWaitForEachOther(t *testing.T) {
	textBubble(t, func(b *bubble, _ *textStatements) {
		start := time.Now()
		var wg sync.WaitGroup
		for n := range 5 {
			p := b.prepareText(fmt.Sprintf("select ?, %d", n))
			other := b.prepareText("select 1")
			wg.Go(func() {
				batch := oneText(n)
				defer batch.Release()
				if s, err := p.Query(b.Context(), batch, backend.Call{}); err == nil {
					s.Close()
				}
			})
			wg.Go(func() {
				if s, err := other.Query(b.Context(), nil, backend.Call{}); err == nil {
					s.Close()
				}
			})
		}
		wg.Wait()
		require.Equal(b, time.Second, time.Since(start))
	})
}

func TestWhoeverWaitsForATurnMayLeave(t *testing.T) {
	textBubble(t, func(b *bubble, server *textStatements) {
		first, second, third := b.prepareText("insert ?"), b.prepareText("insert ?"), b.prepareText("insert ?")
		batch := oneText(1)
		defer batch.Release()
		go func() { _, _ = first.Update(b.Context(), batch, backend.Call{}) }()
		synctest.Wait()

		ctx, stop := context.WithTimeout(b.Context(), 100*time.Millisecond)
		defer stop()
		_, err := second.Update(ctx, batch, backend.Call{})
		e := failure(b, err)
		require.ErrorIs(b, err, context.DeadlineExceeded)
		require.Equal(b, backend.FaultContext, e.Fault)
		require.True(b, e.Unsent, "it has had no turn")

		_, err = third.Update(b.Context(), batch, backend.Call{})
		require.NoError(b, err)
		require.Len(b, server.stored, 2)
		require.Empty(b, b.endpoint.turns.mu.byHandle)
	})
}
