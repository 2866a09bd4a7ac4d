package main

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheDemoHoldsWhatItShows(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, false), out.String())
	require.Contains(t, out.String(), "44/44 queries")
	require.Contains(t, out.String(), "0 running now, 0 transactions open")
	require.NotContains(t, out.String(), "\r")
}

func TestTheDemoEndsCleanlyWhenInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out := writerFunc(func(text []byte) {
		if bytes.Contains(text, []byte("10/44")) {
			cancel()
		}
	})
	require.ErrorIs(t, run(ctx, out, false), context.Canceled)
}

type writerFunc func([]byte)

func (f writerFunc) Write(text []byte) (int, error) {
	f(text)
	return len(text), nil
}
