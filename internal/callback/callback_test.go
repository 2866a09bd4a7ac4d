package callback

import (
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatFComesToIsTheCallers(t *testing.T) {
	var ends sync.WaitGroup
	ends.Add(4) // end may run when the caller has its answer already
	end := ends.Done
	v, present, err := Within(nil, func() (int, error) { return 7, nil }, nil, end)
	require.Equal(t, []any{7, true, nil}, []any{v, present, err})
	refused := errors.New("no")
	_, present, err = Within(nil, func() (int, error) { return 0, refused }, nil, end)
	require.Equal(t, []any{true, refused}, []any{present, err})
	require.PanicsWithValue(t, "stop", func() {
		_, _, _ = Within(nil, func() (int, error) { panic("stop") }, nil, end)
	})
	over := make(chan struct{})
	returned := false
	go func() {
		defer close(over)
		_, _, _ = Within(nil, func() (int, error) { runtime.Goexit(); return 0, nil }, nil, end)
		returned = true
	}()
	<-over
	require.False(t, returned, "Goexit ends the caller")
	ends.Wait()
}

func TestACallerThatIsGoneWaitsForNothing(t *testing.T) {
	gone := make(chan struct{})
	close(gone)
	for _, how := range []func() (int, error){
		func() (int, error) { return 7, nil },
		func() (int, error) { return 0, errors.New("no") },
		func() (int, error) { panic("stop") },
		func() (int, error) { runtime.Goexit(); return 0, nil },
	} {
		release, over := make(chan struct{}), make(chan struct{})
		var late []int
		_, present, err := Within(gone, func() (int, error) { <-release; return how() }, func(v int) { late = append(late, v) }, func() { close(over) })
		require.False(t, present)
		require.NoError(t, err)
		close(release)
		<-over
		require.LessOrEqual(t, len(late), 1)
		for _, v := range late {
			require.Equal(t, 7, v, "only what succeeded")
		}
	}
}
