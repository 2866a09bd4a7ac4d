package flightconn

import (
	"errors"
	"io"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
)

// onlyStatements is a server like Arrow's reference server in Java, whose prepared statements are JDBC's: of each text
// there is one, and whoever prepares, executes or closes it ends the rows that it is giving. Their stream ends with the status OK
// then, as there, where the failure of a result set is no SQLException any more and a finally completes the stream.
type onlyStatements struct {
	*textStatements
	mu   sync.Mutex
	uses map[string]int // of a text
}

const rowsOfOne = 4 // a second apart

func (s *onlyStatements) use(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uses[text]++
	return s.uses[text]
}

func (s *onlyStatements) usedSince(text string, use int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.uses[text] != use
}

func onlyBubble(t *testing.T, test func(b *bubble)) {
	s := &onlyStatements{textStatements: newTextStatements(), uses: map[string]int{}}
	create := s.action
	s.action = func(a *pb.Action, out pb.FlightService_DoActionServer) error {
		var made pb.ActionCreatePreparedStatementRequest
		var closed pb.ActionClosePreparedStatementRequest
		switch a.GetType() {
		case "CreatePreparedStatement":
			if err := unpack(a.GetBody(), &made); err != nil {
				return err
			}
			s.use(made.GetQuery())
		case "ClosePreparedStatement":
			if err := unpack(a.GetBody(), &closed); err != nil {
				return err
			}
			s.use(string(closed.GetPreparedStatementHandle()))
		}
		return create(a, out)
	}
	s.get = func(t *pb.Ticket, out pb.FlightService_DoGetServer) error {
		text := string(t.GetTicket())
		use, n := s.use(text), s.param(text)
		w := flight.NewRecordWriter(out, ipc.WithSchema(int64Schema))
		for range rowsOfOne {
			if s.usedSince(text, use) {
				return nil
			}
			batch := int64Batch(int64(n))
			err := w.Write(batch)
			batch.Release()
			if err != nil {
				return err
			}
			time.Sleep(time.Second)
		}
		return w.Close()
	}
	inBubble(t, &s.fake, test)
}

// requireAllOrError reads rows to their end: a result that lacks some must not end well.
func requireAllOrError(b *bubble, s backend.Stream) {
	defer s.Close()
	n := int64(0)
	for {
		batch, err := s.Next()
		if errors.Is(err, io.EOF) {
			if n != rowsOfOne {
				b.Errorf("%d of %d rows, and no error", n, rowsOfOne)
			}
			return
		}
		if err != nil {
			return
		}
		n += batch.NumRows()
	}
}

// While the rows of an execution come, another connection of the pool does what calls with parameters of an equal text do.
func TestNobodyCutsTheRowsOfAnEqualTextInSilence(t *testing.T) {
	const sql = "select ?"
	for what, beside := range map[string]func(b *bubble, other backend.Prepared, params arrow.RecordBatch){
		"prepares it": func(b *bubble, other backend.Prepared, _ arrow.RecordBatch) {
			_, _ = other.(*prepared).conn.Prepare(b.Context(), sql, backend.Call{})
		},
		"closes its own": func(b *bubble, other backend.Prepared, _ arrow.RecordBatch) {
			_ = other.Close(b.Context())
		},
		"executes it": func(b *bubble, other backend.Prepared, params arrow.RecordBatch) {
			if s, err := other.Query(b.Context(), params, backend.Call{}); err == nil {
				s.Close()
			}
		},
		"executes it without parameters": func(b *bubble, other backend.Prepared, _ arrow.RecordBatch) {
			if s, err := other.Query(b.Context(), nil, backend.Call{}); err == nil {
				s.Close()
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			onlyBubble(t, func(b *bubble) {
				mine, other := b.prepareText(sql), b.prepareText(sql)
				params := texts(strconv.Itoa(7))
				defer params.Release()
				s, err := mine.Query(b.Context(), params, backend.Call{})
				require.NoError(b, err)
				var wg sync.WaitGroup
				wg.Go(func() { beside(b, other, params) })
				synctest.Wait()
				requireAllOrError(b, s)
				wg.Wait()
			})
		})
	}
}
