//go:build duckdb_arrow

package duckdb

import (
	"context"
	"time"

	capi "github.com/duckdb/duckdb-go-bindings"
)

// interruptEvery is how often an interrupt is repeated until the statement
// ends: DuckDB forgets one that arrives just before it starts executing.
const interruptEvery = 5 * time.Millisecond

// interruptAtEnd interrupts the connection from the end of ctx until the returned
// function is called, which waits for an interrupt under way.
//
// INVARIANT: no interrupt is sent after the returned function has returned, so
// none can hit the next statement.
func interruptAtEnd(ctx context.Context, conn capi.Connection) (unguard func()) {
	done, gone := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(gone)
		tick := time.NewTicker(interruptEvery)
		defer tick.Stop()
		for {
			capi.Interrupt(conn)
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	})
	return func() {
		if stop() {
			return
		}
		close(done)
		<-gone
	}
}
