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
	onExit := ends.Done
	v, inTime, err := AwaitUntil(nil, func() (int, error) { return 7, nil }, nil, onExit)
	require.Equal(t, []any{7, true, nil}, []any{v, inTime, err})
	refused := errors.New("no")
	_, inTime, err = AwaitUntil(nil, func() (int, error) { return 0, refused }, nil, onExit)
	require.Equal(t, []any{true, refused}, []any{inTime, err})
	require.PanicsWithValue(t, "stop", func() {
		_, _, _ = AwaitUntil(nil, func() (int, error) { panic("stop") }, nil, onExit)
	})
	over := make(chan struct{})
	returned := false
	go func() {
		defer close(over)
		_, _, _ = AwaitUntil(nil, func() (int, error) { runtime.Goexit(); return 0, nil }, nil, onExit)
		returned = true
	}()
	<-over
	require.False(t, returned, "Goexit ends the caller")
	ends.Wait()
}

func TestACallerThatIsGoneWaitsForNothing(t *testing.T) {
	abandon := make(chan struct{})
	close(abandon)
	for _, how := range []func() (int, error){
		func() (int, error) { return 7, nil },
		func() (int, error) { return 0, errors.New("no") },
		func() (int, error) { panic("stop") },
		func() (int, error) { runtime.Goexit(); return 0, nil },
	} {
		release, over := make(chan struct{}), make(chan struct{})
		var onLateResult []int
		_, inTime, err := AwaitUntil(abandon, func() (int, error) { <-release; return how() }, func(v int) { onLateResult = append(onLateResult, v) }, func() { close(over) })
		require.False(t, inTime)
		require.NoError(t, err)
		close(release)
		<-over
		require.LessOrEqual(t, len(onLateResult), 1)
		for _, v := range onLateResult {
			require.Equal(t, 7, v, "only what succeeded")
		}
	}
}
