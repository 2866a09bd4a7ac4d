package testserver_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/script"
)

func TestTheZeroOptionsServeQueriesOnLoopback(t *testing.T) {
	srv := start(t, testserver.Options{})
	require.Contains(t, srv.Addr(), "127.0.0.1:")
	require.Equal(t, "grpc+tcp://"+srv.Addr(), srv.URI())
	c := dial(t, srv)
	require.Equal(t, [][]string{{"1"}}, c.mustQuery("SELECT 1"))
}

func TestItRunsInVirtualTime(t *testing.T) {
	bubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		require.Equal(t, [][]string{{"1", "x"}}, c.mustQuery("SELECT 1, 'x' AS b"))
		require.Equal(t, int64(0), c.mustUpdate("CREATE TABLE t (a BIGINT)"))
		require.Equal(t, int64(2), c.mustUpdate("INSERT INTO t VALUES (1), (2)"))
		require.Equal(t, [][]string{{"2"}}, c.mustQuery("SELECT count(*) FROM t"))
		require.Equal(t, [][]string{{"true"}}, c.mustQuery("SELECT sleep('1h')"))
		require.Equal(t, [][]string{{"2"}}, c.mustQuery("SELECT * FROM t WHERE a = 2"))
	})
}

func TestAnAnswerOfTheScriptReachesTheClient(t *testing.T) {
	db := script.New()
	db.On("SELECT the answer", script.Rows(batch(t, "answer", 42)))
	srv := start(t, testserver.Options{Engine: db})
	require.Equal(t, [][]string{{"42"}}, dial(t, srv).mustQuery("SELECT the answer"))
}
