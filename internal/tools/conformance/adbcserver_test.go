//go:build duckdb_arrow

package conformance

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
)

// TestEveryBackendTellsTheErrorsOfADBCsServer has that server fail at each of
// its stages, with and without details in the status.
func TestEveryBackendTellsTheErrorsOfADBCsServer(t *testing.T) {
	start := adbcServer(t)
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			addr, _ := start(t)
			conn, err := b.open(t, addr)(t.Context())
			require.NoError(t, err)
			defer func() { require.NoError(t, conn.Close()) }()
			for _, test := range []struct {
				sql, where string
				details    int
			}{
				{"error_create_prepared_statement", "DoAction", 0},
				{"error_create_prepared_statement_detail", "DoAction", 2},
				{"error_get_flight_info", "GetFlightInfo", 0},
				{"error_get_flight_info_detail", "GetFlightInfo", 2},
				{"error_do_get", "DoGet", 0},
				{"error_do_get_detail", "DoGet", 2},
				{"error_do_get_stream", "DoGet", 0},
				{"error_do_get_stream_detail", "DoGet", 2},
			} {
				err := runPrepared(t.Context(), conn, test.sql)
				require.ErrorContains(t, err, test.where)
				var e *backend.Error
				require.ErrorAs(t, err, &e, test.sql)
				require.Equal(t, backend.FaultStatement, e.Fault, test.sql)
				require.Equal(t, codes.InvalidArgument, status.Code(err), test.sql)
				require.Len(t, details(err), test.details, "%s: %v", test.sql, err)
				require.NoError(t, conn.Ping(t.Context()), "the connection is as good as before")
			}
		})
	}
}

// details are what a status carries beside its text, wherever a backend has it.
func details(err error) []any {
	var e adbc.Error
	if !errors.As(err, &e) {
		return status.Convert(err).Details()
	}
	out := make([]any, len(e.Details))
	for i, d := range e.Details {
		out[i] = d
	}
	return out
}

func TestEveryBackendLeavesAQueryOfADBCsServerThatNeverAnswers(t *testing.T) {
	start := adbcServer(t)
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			addr, _ := start(t)
			conn, err := b.open(t, addr)(t.Context())
			require.NoError(t, err)
			defer func() { require.NoError(t, conn.Close()) }()
			const limit = 200 * time.Millisecond
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			began := time.Now()
			err = runPrepared(ctx, conn, "forever")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Less(t, time.Since(began), limit+2*time.Second, "a busy machine is no defect")
			var e *backend.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, backend.FaultContext, e.Fault)
			require.NoError(t, conn.Ping(t.Context()))
		})
	}
}

// runPrepared prepares a statement and reads what it returns.
func runPrepared(ctx context.Context, conn backend.Conn, sql string) error {
	p, err := conn.Prepare(ctx, sql, backend.Call{})
	if err != nil {
		return err
	}
	defer func() { _ = p.Close(context.WithoutCancel(ctx)) }()
	rows, err := p.Query(ctx, nil, backend.Call{})
	if err != nil {
		return err
	}
	defer rows.Close()
	for err == nil {
		_, err = rows.Next()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
