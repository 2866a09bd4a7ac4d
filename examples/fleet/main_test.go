package main

import (
	"bytes"
	"context"
	"log"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// The members are this test's program again.
func TestMain(m *testing.M) {
	if settings := os.Getenv(settingsVariable); settings != "" {
		if err := member(context.Background(), settings, os.Stdin, os.Stdout); err != nil {
			log.Fatal(err)
		}
		return
	}
	os.Exit(m.Run())
}

func TestAFleetStaysWithinItsLimitWithoutARefusal(t *testing.T) {
	for _, store := range []string{dynamoStore, postgresStore} {
		t.Run(store, func(t *testing.T) {
			var out bytes.Buffer
			require.NoError(t, run(t.Context(), options{members: 3, want: 4, limit: 8, seconds: 6, store: store}, &out))
			require.Contains(t, out.String(), "cluster: 8 of 8")
			require.Contains(t, out.String(), "member 0 is killed")
			require.Contains(t, out.String(), "refused by the cluster: map[]")
		})
	}
	_, err := startStore(t.Context(), &settings{Store: "elsewhere"}, nil)
	require.ErrorContains(t, err, `-store is "elsewhere"`)
}
