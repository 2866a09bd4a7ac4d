package session

import (
	"sync"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/internal/eof"
)

// ownedStream closes the prepared statement that it came from at its end.
type ownedStream struct {
	Stream
	stmt Prepared
	s    *SessionHandle
	once sync.Once
}

// Next frees the statement as soon as the rows have ended, while the session
// is still this call's.
func (o *ownedStream) Next() (arrow.RecordBatch, error) {
	batch, err := o.Stream.Next()
	if err != nil && (eof.Reached(err) || FaultIn(err).KeepsConn()) {
		o.once.Do(func() {
			ctx, stop := o.s.policy.bounded()
			defer stop()
			if err := o.stmt.Close(ctx); err != nil {
				o.s.doom(err)
			}
		})
	}
	return batch, err
}

// Close leaves a statement whose rows were given up to the session's clean-up.
func (o *ownedStream) Close() {
	o.Stream.Close()
	o.once.Do(func() { o.s.adopt(o.stmt) })
}

// adopt puts a prepared statement on record, to be closed with the handle.
func (s *SessionHandle) adopt(stmt Prepared) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.prepared == nil {
		s.mu.prepared = make(map[*PreparedQuery]struct{})
	}
	s.mu.prepared[&PreparedQuery{s: s, stmt: stmt}] = struct{}{}
}
