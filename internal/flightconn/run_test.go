package flightconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A server enforces the deadline that it is told, and may be first to. One that
// ends a statement for reasons of its own has ended the statement alone.
func TestWhoseTimeIsUp(t *testing.T) {
	for name, c := range map[string]struct {
		left time.Duration // to the caller's deadline; 0: it has none
		code codes.Code
		want backend.Fault
	}{
		"the caller's, just":             {time.Millisecond, codes.DeadlineExceeded, backend.FaultContext},
		"the caller's, by another clock": {100 * time.Millisecond, codes.DeadlineExceeded, backend.FaultContext},
		"the server's":                   {101 * time.Millisecond, codes.DeadlineExceeded, backend.FaultStatement},
		"the server's own":               {0, codes.DeadlineExceeded, backend.FaultStatement},
		"cancelled there":                {time.Millisecond, codes.Canceled, backend.FaultStatement},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{put: func(pb.FlightService_DoPutServer) error { return status.Error(c.code, "over") }}
			inBubble(t, f, func(b *bubble) {
				conn, ctx := b.open(), b.Context()
				if c.left > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.left)
					defer cancel()
				}
				_, err := conn.Update(ctx, "u", backend.Call{})
				e := failure(b, err)
				require.Equal(b, c.want, e.Fault)
				if c.want == backend.FaultContext {
					require.Equal(b, context.DeadlineExceeded, e.Ctx)
				}
				require.NoError(b, conn.Lost())
			})
		})
	}
}

func TestALossNamesItsReasonAndWhatTheCallHeard(t *testing.T) {
	reason, heard := errors.New("reset"), errors.New("unavailable")
	for _, c := range []struct {
		reason, cause error
		text          string
		is            []error
	}{
		{reason, heard, ": reset (unavailable)", []error{reason, heard}},
		{reason, nil, ": reset", []error{reason}},
		{nil, heard, " (unavailable)", []error{heard}},
		{fmt.Errorf("transport: %w", heard), heard, ": transport: unavailable", []error{heard}},
		{reason, context.Canceled, ": reset", []error{reason}},
		{reason, context.DeadlineExceeded, ": reset", []error{reason}},
	} {
		err := LostError(c.reason, c.cause)
		require.Equal(t, backend.ErrSessionLost.Error()+c.text, err.Error())
		require.ErrorIs(t, err, backend.ErrSessionLost)
		for _, is := range c.is {
			require.ErrorIs(t, err, is)
		}
		require.NotErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, io.EOF)
	}
}

// What was sent in part is not unsent, whatever is wrong with the rest.
func TestAnIngestThatWasBegunIsNotUnsent(t *testing.T) {
	for name, f := range map[string]*fake{
		"a row too large": {put: func(s pb.FlightService_DoPutServer) error {
			for {
				if _, err := s.Recv(); err != nil {
					return err
				}
			}
		}},
		"refused": {put: func(s pb.FlightService_DoPutServer) error {
			_, _ = s.Recv()
			return status.Error(codes.Unauthenticated, "expired")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, f, func(b *bubble) {
				small, large := texts("x"), texts(strings.Repeat("x", 2*minRequestLimit))
				defer small.Release()
				defer large.Release()
				rows, err := array.NewRecordReader(small.Schema(), []arrow.RecordBatch{small, large})
				require.NoError(b, err)
				defer rows.Release()
				_, err = b.open().Ingest(b.Context(), rows, backend.IngestOptions{Table: "t"}, backend.Call{})
				require.Error(b, err)
				require.False(b, failure(b, err).Unsent)
				require.False(b, backend.SafeToRetry(err))
			}, func(cfg *Config) { cfg.RequestLimit = minRequestLimit })
		})
	}
}

func TestAnIngestThatMakesNoSenseIsNotSent(t *testing.T) {
	inBubble(t, &fake{}, func(b *bubble) {
		c := b.open()
		batch := texts("x")
		defer batch.Release()
		for _, opts := range []backend.IngestOptions{
			{}, {Table: "t", Mode: backend.IngestReplace + 1}, {Table: "t", Compression: backend.IngestZSTD + 1},
		} {
			rows, err := array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch})
			require.NoError(b, err)
			_, err = c.Ingest(b.Context(), rows, opts, backend.Call{})
			require.Equal(b, backend.FaultUsage, failure(b, err).Fault)
			require.True(b, failure(b, err).Unsent)
			rows.Release()
		}
		require.Zero(b, b.fake.puts.Load())
	})
}

func TestAnIngestNamesItsCatalogAndSchemaOnlyIfItHasSome(t *testing.T) {
	for _, name := range []string{"", "x"} {
		cmd := ingestCommand(backend.IngestOptions{Table: "t", Catalog: name, Schema: name})
		require.Equal(t, name, cmd.GetCatalog())
		require.Equal(t, name, cmd.GetSchema())
		require.Equal(t, name != "", cmd.Catalog != nil)
		require.Equal(t, name != "", cmd.Schema != nil)
	}
}
