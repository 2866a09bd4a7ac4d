package flightconn

import (
	"context"
	"sync"
)

// handleTurns keep apart the executions with parameters, over all connections of an endpoint, of
// statements that are one on the server. Where the handle of a prepared statement is its text, as
// on Arrow's reference server in Java, equal texts of all clients are one, with one set of parameters.
//
// INVARIANT: from the sending of parameters for such a handle up to the first answer to its execution,
// nobody else of the endpoint sends any for it. The rows of one caller would be those that another has
// asked for, and of two changes one would be made twice and the other not at all.
//
// Its zero value is ready, and it is safe for use by any goroutine.
type handleTurns struct {
	mu struct { // guards the field below and users of each turn; nothing is called under it
		sync.Mutex
		byHandle map[string]*handleTurn
	}
}

// handleTurn lives while somebody has the turn or waits for it.
type handleTurn struct {
	users int
	free  chan struct{} // has its one element while nobody has the turn
}

// take waits for the turn of a handle, which must be given back. An error is that of ctx.
func (t *handleTurns) take(ctx context.Context, handle string) (*handleTurn, error) {
	turn := t.enter(handle)
	select {
	case <-turn.free:
		return turn, nil
	case <-ctx.Done():
		t.leave(handle, turn)
		return nil, ctx.Err()
	}
}

// giveBack ends a turn that was taken.
func (t *handleTurns) giveBack(handle string, turn *handleTurn) {
	turn.free <- struct{}{}
	t.leave(handle, turn)
}

func (t *handleTurns) enter(handle string) *handleTurn {
	t.mu.Lock()
	defer t.mu.Unlock()
	turn := t.mu.byHandle[handle]
	if turn == nil {
		turn = &handleTurn{free: make(chan struct{}, 1)}
		turn.free <- struct{}{}
		if t.mu.byHandle == nil {
			t.mu.byHandle = map[string]*handleTurn{}
		}
		t.mu.byHandle[handle] = turn
	}
	turn.users++
	return turn
}

func (t *handleTurns) leave(handle string, turn *handleTurn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if turn.users--; turn.users == 0 {
		delete(t.mu.byHandle, handle)
	}
}
