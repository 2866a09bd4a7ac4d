package flightconn

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/session"
)

// A server enforces the deadline that it is told, and may be first to. One that
// ends a statement for reasons of its own has ended the statement alone.
func TestWhoseTimeIsUp(t *testing.T) {
	for name, c := range map[string]struct {
		left time.Duration // to the caller's deadline; 0: it has none
		code codes.Code
		want session.Fault
	}{
		"the caller's, just":             {time.Millisecond, codes.DeadlineExceeded, session.FaultContext},
		"the caller's, by another clock": {100 * time.Millisecond, codes.DeadlineExceeded, session.FaultContext},
		"the server's":                   {101 * time.Millisecond, codes.DeadlineExceeded, session.FaultStatement},
		"the server's own":               {0, codes.DeadlineExceeded, session.FaultStatement},
		"cancelled there":                {time.Millisecond, codes.Canceled, session.FaultStatement},
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
				_, err := conn.Update(ctx, "u", session.Call{})
				e := failure(b, err)
				require.Equal(b, c.want, e.Fault)
				if c.want == session.FaultContext {
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
		{reason, context.Canceled, ": reset", []error{reason}},
		{reason, context.DeadlineExceeded, ": reset", []error{reason}},
	} {
		err := LostError(c.reason, c.cause)
		require.Equal(t, session.ErrSessionLost.Error()+c.text, err.Error())
		require.ErrorIs(t, err, session.ErrSessionLost)
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
				_, err = b.open().Ingest(b.Context(), rows, session.IngestOptions{Table: "t"}, session.Call{})
				require.Error(b, err)
				require.False(b, failure(b, err).Unsent)
				require.False(b, session.SafeToRetry(err))
			}, func(cfg *Config) { cfg.RequestLimit = minRequestLimit })
		})
	}
}

func TestAnIngestThatMakesNoSenseIsNotSent(t *testing.T) {
	inBubble(t, &fake{}, func(b *bubble) {
		c := b.open()
		batch := texts("x")
		defer batch.Release()
		for _, opts := range []session.IngestOptions{
			{}, {Table: "t", Mode: session.IngestReplace + 1}, {Table: "t", Compression: session.IngestZSTD + 1},
		} {
			rows, err := array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch})
			require.NoError(b, err)
			_, err = c.Ingest(b.Context(), rows, opts, session.Call{})
			require.Equal(b, session.FaultUsage, failure(b, err).Fault)
			require.True(b, failure(b, err).Unsent)
			rows.Release()
		}
		require.Zero(b, b.fake.puts.Load())
	})
}

func TestAnIngestNamesItsCatalogAndSchemaOnlyIfItHasSome(t *testing.T) {
	for _, name := range []string{"", "x"} {
		cmd := ingestCommand(session.IngestOptions{Table: "t", Catalog: name, Schema: name})
		require.Equal(t, name, cmd.GetCatalog())
		require.Equal(t, name, cmd.GetSchema())
		require.Equal(t, name != "", cmd.Catalog != nil)
		require.Equal(t, name != "", cmd.Schema != nil)
	}
}
