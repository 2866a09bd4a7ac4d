package flightconn

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/session"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
)

// Arrow's example in C++ for SQLite runs the first statement of a text, and confirms the rest. GizmoSQL runs all of them, and has the
// rows of the first.
func TestAServerIsAskedWhatItMakesOfSeveralStatements(t *testing.T) {
	for name, tc := range map[string]struct {
		version, answer string
		failure         error
		update, query   bool
		asked           int
	}{
		"C++ on SQLite":     {"sqlite 3", "first", nil, true, true, 1},
		"Go on SQLite":      {"sqlite 3", "last", nil, false, false, 1},
		"GizmoSQL":          {"duckdb v1.5.5", "first", nil, false, true, 1},
		"the rows are last": {"duckdb v1.5.5", "last", nil, false, false, 1},
		"it refuses them":   {"sqlite 3", "", status.Error(codes.InvalidArgument, "one statement at a time"), false, false, 5},
	} {
		version, text := sqlInfoBatch(uint32(flightsql.SqlInfoFlightSqlServerVersion), tc.version), texts(tc.answer)
		asked := 0
		f := &fake{action: (&txServer{}).action}
		f.info = func(_ context.Context, d *pb.FlightDescriptor) (*pb.FlightInfo, error) {
			if !strings.Contains(string(d.GetCmd()), "; SELECT 'last'") {
				return answer(version.Schema(), "version"), nil
			}
			asked++
			return answer(text.Schema(), "text"), tc.failure
		}
		f.get = func(ticket *pb.Ticket, s pb.FlightService_DoGetServer) error {
			batch := version
			if string(ticket.GetTicket()) == "text" {
				batch = text
			}
			w := flight.NewRecordWriter(s, ipc.WithSchema(batch.Schema()))
			return errors.Join(w.Write(batch), w.Close())
		}
		inBubble(t, f, func(b *bubble) {
			cuts, err := b.open().CutsTexts(b.Context(), false, "1")
			require.NoError(b, err, name)
			require.Equal(b, tc.update, cuts, "%s, in a transaction before it is known", name)
			for range 2 {
				conn := b.open()
				for asUpdate, want := range map[bool]bool{true: tc.update, false: tc.query} {
					cuts, err := conn.CutsTexts(b.Context(), asUpdate, "")
					require.NoError(b, err, name)
					require.Equal(b, want, cuts, "%s, as an update: %t", name, asUpdate)
				}
			}
			require.Equal(b, tc.asked, asked, name)
		})
		version.Release()
		text.Release()
	}
}

// Of a server that runs statements in whatever transaction is open nothing is lost by the question: what it refuses of it, it would refuse of the text.
func TestAServerThatIgnoresTransactionsIsAskedInOne(t *testing.T) {
	for answered, failure := range map[string]error{"first": nil, "last": nil, "": status.Error(codes.InvalidArgument, "one statement at a time")} {
		version, text := sqlInfoBatch(uint32(flightsql.SqlInfoFlightSqlServerVersion), "duckdb v1.5.5"), texts(answered)
		f := &fake{action: (&txServer{ignores: true}).action}
		f.info = func(_ context.Context, d *pb.FlightDescriptor) (*pb.FlightInfo, error) {
			if !strings.Contains(string(d.GetCmd()), "; SELECT 'last'") {
				return answer(version.Schema(), "version"), nil
			}
			return answer(text.Schema(), "text"), failure
		}
		f.get = func(ticket *pb.Ticket, s pb.FlightService_DoGetServer) error {
			batch := version
			if string(ticket.GetTicket()) == "text" {
				batch = text
			}
			w := flight.NewRecordWriter(s, ipc.WithSchema(batch.Schema()))
			return errors.Join(w.Write(batch), w.Close())
		}
		inBubble(t, f, func(b *bubble) {
			conn := b.open()
			tx, err := conn.Begin(b.Context())
			require.NoError(b, err)
			cuts, err := conn.CutsTexts(b.Context(), true, tx)
			require.NoError(b, err)
			require.False(b, cuts)
			cuts, err = conn.CutsTexts(b.Context(), false, tx)
			require.Equal(b, answered == "first", cuts)
			require.Equal(b, failure != nil, err != nil, "the transaction may be aborted by a refusal: nothing of the text is sent: %v", err)
		})
		version.Release()
		text.Release()
	}
}

func TestArrowsExampleInGoRunsAllOfAText(t *testing.T) {
	conn, err := startSQLite(t).Open(t.Context())
	require.NoError(t, err)
	s := session.New(conn, &session.Policy{OwnerContext: t.Context()}, func(discard error) { require.NoError(t, discard) })
	_, err = s.Update(t.Context(), "CREATE TABLE t (v INTEGER); INSERT INTO t VALUES (7)")
	require.NoError(t, err)
	var v int
	require.NoError(t, s.QueryRow(t.Context(), "SELECT 1; SELECT v FROM t").Scan(&v))
	require.Equal(t, 7, v)
	require.NoError(t, s.Close())
	require.NoError(t, conn.Close())
}
