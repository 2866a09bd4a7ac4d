package testserver_test

import (
	"context"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/flightpool/flightpool/testserver"
)

func benchClient(b *testing.B, srv *testserver.Server) *client {
	b.Helper()
	cl, err := flightsql.NewClient("passthrough:///"+srv.Addr(), nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(b, err)
	return &client{Client: cl, srv: srv}
}

// BenchmarkOpen is a connection, its session and one query.
func BenchmarkOpen(b *testing.B) {
	srv, err := testserver.Start(testserver.Options{})
	require.NoError(b, err)
	defer func() { require.NoError(b, srv.Close()) }()
	for b.Loop() {
		c := benchClient(b, srv)
		_, err := c.query(context.Background(), "SELECT 1")
		require.NoError(b, err)
		require.NoError(b, c.Close())
	}
}

// BenchmarkQuery is a query on an open connection: GetFlightInfo and DoGet.
func BenchmarkQuery(b *testing.B) {
	srv, err := testserver.Start(testserver.Options{})
	require.NoError(b, err)
	defer func() { require.NoError(b, srv.Close()) }()
	c := benchClient(b, srv)
	defer func() { require.NoError(b, c.Close()) }()
	for b.Loop() {
		_, err := c.query(context.Background(), "SELECT 1")
		require.NoError(b, err)
	}
}
