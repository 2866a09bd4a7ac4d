package callback

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNoticesAreToldInTheirOrderByOneAtATime(t *testing.T) {
	var n Notices[int]
	var order sync.Mutex // as a state has, whose changes are told
	added := 0
	var told []int // unguarded: one at a time
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				order.Lock()
				added++
				n.Add(added)
				order.Unlock()
				n.Tell(func(v int) { told = append(told, v) })
			}
		})
	}
	all.Wait()
	n.Tell(func(v int) { told = append(told, v) })
	require.Len(t, told, 1600)
	for i, v := range told {
		require.Equal(t, i+1, v)
	}
}

func TestANoticeThatEndsTheGoroutineLeavesTheOthersToTheNextCall(t *testing.T) {
	var n Notices[int]
	n.Add(1)
	n.Add(2)
	over := make(chan struct{})
	go func() {
		defer close(over)
		n.Tell(func(int) { runtime.Goexit() })
	}()
	<-over
	var told []int
	n.Tell(func(v int) { told = append(told, v) })
	require.Equal(t, []int{2}, told)
}
