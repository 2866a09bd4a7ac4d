package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func TestItServesTheFolderUntilItsContextEndsAndSumsUp(t *testing.T) {
	data := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(data, "t.csv"), []byte("i\n1\n2\n"), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	in, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"-profile", "swanlake", "-data", data, "-threads", "3"}, out)
		ended <- err
		out.CloseWithError(err)
	}()
	lines := bufio.NewScanner(in)
	require.True(t, lines.Scan())
	var addr, profile string
	_, err := fmt.Sscanf(lines.Text(), "ready: grpc+tcp://%s %s", &addr, &profile)
	require.NoError(t, err, lines.Text())
	require.Equal(t, "(swanlake)", profile)

	c, err := flightsql.NewClient(addr, nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	_, err = c.ExecuteUpdate(t.Context(), "DELETE FROM t")
	require.NoError(t, err)
	info, err := c.Execute(t.Context(), "SELECT current_setting('threads')")
	require.NoError(t, err)
	threads, err := c.DoGet(t.Context(), info.GetEndpoint()[0].GetTicket())
	require.NoError(t, err)
	require.True(t, threads.Next())
	require.Equal(t, "3", threads.RecordBatch().Column(0).ValueStr(0))
	threads.Release()
	require.NoError(t, c.Close())

	cancel()
	require.True(t, lines.Scan())
	require.Contains(t, lines.Text(), "executed 3") // SwanLake runs a query for its schema, too
	require.NoError(t, <-ended)
}

func TestWrongFlagsAreRefused(t *testing.T) {
	require.ErrorContains(t, run(t.Context(), []string{"-profile", "oracle"}, io.Discard), "oracle")
	require.ErrorContains(t, run(t.Context(), []string{"-threads", "0"}, io.Discard), "threads")
	require.ErrorContains(t, run(t.Context(), []string{"-data", "/no/such/folder"}, io.Discard), "no such file")
	require.ErrorContains(t, run(t.Context(), []string{"-addr", "nowhere"}, io.Discard), "nowhere")
}
