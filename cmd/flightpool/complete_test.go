package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCompletionWaitsAMomentForTheNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &catalog{asking: true, asked: make(chan struct{})}
		time.AfterFunc(time.Second, func() {
			c.mu.Lock()
			c.columns = map[string][]string{"flights": {"origin"}}
			c.mu.Unlock()
			close(c.asked)
		})
		_, words, _ := c.complete("SELECT * FROM fli", 17)
		require.Equal(t, []string{"flights"}, words)
		_, words, _ = c.complete("SELECT flights.o", 16)
		require.Equal(t, []string{"origin"}, words)

		c.asked = make(chan struct{}) // of a server that does not answer
		began := time.Now()
		head, words, tail := c.complete("sel 1", 3)
		require.Equal(t, []string{"select"}, words)
		require.Equal(t, []string{"", " 1"}, []string{head, tail})
		require.Equal(t, 2*time.Second, time.Since(began))
	})
}
