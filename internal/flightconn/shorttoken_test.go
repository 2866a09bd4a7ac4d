package flightconn

import (
	"context"
	"fmt"
	"testing"
	"time"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
)

// ClickHouse answers each call that comes with a password by a token, which ends a minute after the beginning of the last
// call that came with it.
func TestAPasswordIsPresentedWhereAHeaderNamesTheSession(t *testing.T) {
	ends := map[string]time.Time{}
	admit := func(ctx context.Context, set func(metadata.MD) error) error {
		md, _ := metadata.FromIncomingContext(ctx)
		shown := md.Get("authorization")[0]
		if shown == basicAuth("u", "p") {
			shown = fmt.Sprint("Bearer ", len(ends))
		} else if !time.Now().Before(ends[shown]) {
			return status.Error(codes.Unauthenticated, "Session expired or not authenticated.")
		}
		ends[shown] = time.Now().Add(time.Minute)
		return set(metadata.Pairs("authorization", shown))
	}
	f := &fake{
		info: func(ctx context.Context, d *pb.FlightDescriptor) (*pb.FlightInfo, error) {
			if err := admit(ctx, func(md metadata.MD) error { return grpc.SetHeader(ctx, md) }); err != nil {
				return nil, err
			}
			if !isProbe(d) {
				time.Sleep(90 * time.Second)
			}
			return infoOf(answer(int64Schema, "0"))(ctx, d)
		},
		get: func(k *pb.Ticket, s pb.FlightService_DoGetServer) error {
			if err := admit(s.Context(), s.SetHeader); err != nil {
				return err
			}
			return byTicket(k, s)
		},
	}
	inBubble(t, f, func(b *bubble) {
		c := b.open()
		for range 2 {
			s, err := c.Query(b.Context(), "q", backend.Call{})
			require.NoError(b, err)
			require.Equal(b, upTo(10), values(b, s))
		}
		require.NoError(b, c.Lost())
	}, func(cfg *Config) {
		cfg.Authorization = bearer(basicAuth("u", "p"))
		cfg.SessionHeader = "x-session"
	})
}
