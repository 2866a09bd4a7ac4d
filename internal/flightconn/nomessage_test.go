package flightconn

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/flightpool/flightpool/internal/memnet"
)

// A server may end an RPC well without the message that is its answer. No interceptor is blamed for that where there is none.
func TestAnAnswerWithoutAMessageIsTheServersFault(t *testing.T) {
	inBubble(t, &fake{}, func(b *bubble) {
		l := memnet.New(here)
		b.net[here] = l
		empty := grpc.NewServer(grpc.WaitForHandlers(true), grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return nil }))
		go func() { _ = empty.Serve(l) }()
		defer func() { empty.Stop(); _ = l.Close() }()
		_, err := b.endpoint.Open(b.Context())
		require.ErrorContains(b, err, "no message")
		require.NotContains(b, err.Error(), "DialOptions")
	})
}
