package flightpool

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/session"
	"github.com/flightpool/flightpool/testserver"
)

// panicking is a context of the user's whose method panics, or ends the
// goroutine, at the left'th call. Zero: none does any more.
type panicking struct {
	context.Context
	left *int
	end  func()
}

func (c panicking) called() {
	if *c.left > 0 {
		if *c.left--; *c.left == 0 {
			c.end()
		}
	}
}

func (c panicking) Done() <-chan struct{}       { c.called(); return c.Context.Done() }
func (c panicking) Err() error                  { c.called(); return c.Context.Err() }
func (c panicking) Deadline() (time.Time, bool) { c.called(); return c.Context.Deadline() }
func (c panicking) Value(key any) any           { c.called(); return c.Context.Value(key) }

// The calls of a pool ask the caller's context many things, between the loan and
// the end of the call as well. A nil context panics at the first.
func TestAPanicInTheCallersContextKeepsNoConnection(t *testing.T) {
	calls := map[string]func(ctx context.Context, p *FlightSQLPool){
		"Query":  func(ctx context.Context, p *FlightSQLPool) { _, _ = firstValue(ctx, p, "SELECT 1") },
		"Update": func(ctx context.Context, p *FlightSQLPool) { _, _ = p.Update(ctx, "SET a = 1") },
		"Ping":   func(ctx context.Context, p *FlightSQLPool) { _ = p.Ping(ctx) },
		"parameters": func(ctx context.Context, p *FlightSQLPool) {
			_ = drained(p.Query(ctx, "SELECT ?", 7)) // by a statement that is kept
		},
		"Ingest": func(ctx context.Context, p *FlightSQLPool) {
			batch := ints("a", 1)
			if rows, err := array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch}); err == nil {
				_, _ = p.Ingest(ctx, "t", rows, IngestOptions{})
			}
		},
		"session": func(ctx context.Context, p *FlightSQLPool) {
			s, err := p.AcquireSession(ctx)
			if err == nil {
				defer func() { _ = s.Close() }()
				_ = s.BeginTransaction(ctx)
				_, _ = s.Update(ctx, "SET a = 1")
				_ = s.Commit(ctx)
			}
		},
		"InTx": func(ctx context.Context, p *FlightSQLPool) {
			_ = p.InTx(ctx, TxOptions{}, func(ctx context.Context, tx *Tx) error {
				_, err := tx.Update(ctx, "SET a = 1")
				return err
			})
		},
		"Tx": func(ctx context.Context, p *FlightSQLPool) {
			tx, err := p.BeginTx(ctx, TxOptions{})
			if err == nil {
				_ = tx.Commit(ctx)
			}
		},
		"WithTransaction": func(ctx context.Context, p *FlightSQLPool) {
			s, err := p.AcquireSession(ctx)
			if err == nil {
				defer func() { _ = s.Close() }()
				_ = s.WithTransaction(ctx, func(ctx context.Context, s *session.SessionHandle) error {
					_, err := firstValue(ctx, s, "SELECT 1")
					return err
				})
			}
		},
	}
	ends := map[string]func(){"panic": func() { panic("context") }, "Goexit": runtime.Goexit}
	// What the call meets: begin is before it, and what it returns once it waits.
	meets := map[string]func(r *rig) func(){
		"an idle connection": func(*rig) func() { return func() {} },
		"a session to prove": func(*rig) func() { time.Sleep(6 * time.Second); return func() {} },
		"none":               func(r *rig) func() { held := r.session(); return func() { _ = held.Close() } },
		"a failure": func(r *rig) func() {
			fault := r.srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, Times: 1, Do: testserver.Fail(codes.Unavailable, "gone")})
			return fault.Clear
		},
	}
	for name, call := range calls {
		for met, begin := range meets {
			for way, end := range ends {
				if !sampled(name+met+way, 3) {
					continue
				}
				t.Run(name+", "+met+", "+way, func(t *testing.T) {
					cfg := Config{MaxSize: 1, StatementCache: 2}
					if met == "a session to prove" {
						cfg.OnConnect = paint
					}
					inBubble(t, testserver.Strict(), cfg, func(r *rig) {
						for at, reached := 1, true; reached; at++ {
							require.NoError(t, r.pool.Ping(r.Context()), "at %d", at)
							left := at
							ended := make(chan struct{})
							waits := begin(r)
							go func() {
								defer close(ended)
								defer func() { _ = recover() }()
								ctx, stop := context.WithCancel(r.Context())
								defer stop()
								call(panicking{ctx, &left, end}, r.pool)
							}()
							synctest.Wait()
							waits()
							<-ended
							time.Sleep(10 * time.Second) // for cancel chains
							synctest.Wait()              // for those who ask the context
							reached = left == 0
							left = 0
							require.Zero(t, r.pool.Stats().InUse, "at %d", at)
							require.Zero(t, r.pool.Stats().Waiting, "at %d", at)
						}
					})
				})
			}
		}
	}
	inBubble(t, testserver.Strict(), Config{MaxSize: 1}, func(r *rig) {
		require.Panics(t, func() { _, _ = r.pool.Query(nil, "SELECT 1") }) //nolint:staticcheck // on purpose
		require.Zero(t, r.pool.Stats().InUse)
	})
}
