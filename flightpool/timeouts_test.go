package flightpool

import (
	"context"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/script"
)

// SwanLake keeps the session of a connection that is closed for a quarter of an hour, and takes a hundred: were each
// statement that is late to cost its connection, it would take none soon.
func TestLateStatementsCostNoConnectionOnSwanLake(t *testing.T) {
	inBubble(t, testserver.SwanLake(), Config{MaxSize: 1}, func(r *rig) {
		r.exec("CREATE TABLE swanlake.t (a BIGINT)")
		_, err := r.pool.Update(r.Context(), "INSERT INTO swanlake.t VALUES (?)", 0)
		require.NoError(r, err)
		r.srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, Do: testserver.Delay(time.Second)})
		late := func(call func(ctx context.Context) error) {
			ctx, stop := context.WithTimeout(r.Context(), 50*time.Millisecond)
			defer stop()
			start := time.Now()
			require.ErrorIs(r, call(ctx), context.DeadlineExceeded)
			require.Less(r, time.Since(start), 60*time.Millisecond)
			time.Sleep(10 * time.Second)
		}
		for i := range 5 {
			late(func(ctx context.Context) error {
				_, err := r.pool.Update(ctx, "INSERT INTO swanlake.t VALUES (?)", i)
				return err
			})
			late(func(ctx context.Context) error {
				return drained(r.pool.Query(ctx, "SELECT * FROM swanlake.t WHERE a = ?", i))
			})
			late(func(ctx context.Context) error {
				return r.pool.InTx(ctx, TxOptions{}, func(ctx context.Context, tx *Tx) error {
					_, err := tx.Update(ctx, "INSERT INTO swanlake.t VALUES (?)", 100+i)
					return err
				})
			})
		}
		require.EqualValues(r, 1, r.pool.Stats().Opens)
		require.Equal(r, 1, r.srv.Ledger().Snapshot().SessionsOpened)
		r.srv.Faults().Clear()
		require.Equal(r, "0", r.value(r.pool, "SELECT count(*) FROM swanlake.t WHERE a = 102"))
	})
}

// What a change has not sent when its caller leaves is not sent behind it.
func TestAStatementThatItsCallerLeftWhileItWasPreparedIsNotExecuted(t *testing.T) {
	inBubble(t, testserver.SwanLake(), Config{MaxSize: 1}, func(r *rig) {
		r.exec("CREATE TABLE swanlake.t (a BIGINT)")
		const insert = "INSERT INTO swanlake.t VALUES (?)"
		_, err := r.pool.Update(r.Context(), insert, 0)
		require.NoError(r, err)
		ctx, stop := context.WithTimeout(r.Context(), 50*time.Millisecond)
		defer stop()
		r.srv.Faults().Set(testserver.Fault{On: testserver.OnPrepare, SQL: "INSERT", Do: testserver.Delay(time.Second)})
		_, err = r.pool.Update(ctx, insert, 1)
		require.ErrorIs(r, err, context.DeadlineExceeded)
		time.Sleep(10 * time.Second)
		require.Equal(r, "1", r.value(r.pool, "SELECT count(*) FROM swanlake.t"))
		require.EqualValues(r, 1, r.pool.Stats().Opens)
	})
}

// A program that only reads with parameters asks nothing else by which such a server is known.
func TestLateReadsWithParametersCostFewConnectionsOnSwanLake(t *testing.T) {
	for _, kind := range []string{"query", "prepared"} {
		t.Run(kind, func(t *testing.T) {
			inBubble(t, testserver.SwanLake(), Config{MaxSize: 1}, func(r *rig) {
				r.exec("CREATE TABLE swanlake.t (a BIGINT)")
				r.srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: "WHERE a", Do: testserver.Delay(time.Second)})
				const sql = "SELECT * FROM swanlake.t WHERE a = ?"
				for i := range 8 {
					ctx, stop := context.WithTimeout(r.Context(), 50*time.Millisecond)
					var err error
					if kind == "query" {
						err = drained(r.pool.Query(ctx, sql, i))
					} else {
						err = r.pool.WithSession(r.Context(), func(_ context.Context, s *SessionHandle) error {
							q, err := s.PrepareQuery(r.Context(), sql)
							if err != nil {
								return err
							}
							return drained(q.Query(ctx, i))
						})
					}
					stop()
					require.ErrorIs(r, err, context.DeadlineExceeded)
					time.Sleep(10 * time.Second)
				}
				require.LessOrEqual(r, int(r.pool.Stats().Opens), 3, "the first, and the one by which it is found out")
			})
		})
	}
}

// The statement has ended when its rows come: that a deadline ends the reading of them costs no connection either.
func TestRowsThatAreLateCostNoConnectionOnSwanLake(t *testing.T) {
	for _, name := range []string{"in a read", "between two"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, testserver.SwanLake(), Config{MaxSize: 1}, func(r *rig) {
				r.exec("CREATE TABLE swanlake.t (a BIGINT)")
				_, err := r.pool.Update(r.Context(), "INSERT INTO swanlake.t VALUES (?)", 0)
				require.NoError(r, err)
				r.srv.Faults().Set(testserver.Fault{On: testserver.OnBatch, SQL: "generate", Do: testserver.Delay(50 * ms)})
				for range 5 {
					ctx, stop := context.WithTimeout(r.Context(), 230*ms)
					res, err := r.pool.Query(ctx, "SELECT * FROM generate(1000, 100)")
					require.NoError(r, err)
					start, read := time.Now(), 0
					for res.Next() {
						read++
						if name == "between two" && read == 3 {
							<-ctx.Done()
						}
					}
					require.ErrorIs(r, res.Err(), context.DeadlineExceeded)
					require.Less(r, time.Since(start), 240*ms)
					require.Positive(r, read)
					res.Release()
					stop()
					time.Sleep(10 * time.Second)
				}
				require.EqualValues(r, 1, r.pool.Stats().Opens)
			})
		})
	}
}

// A change whose rows its reader has released is read on to its end, or to the deadline of its context, and where a
// statement has time to end by itself then, for that time.
func TestRowsOfAChangeThatAreReleasedAreReadOnToTheirDeadline(t *testing.T) {
	const change = "WITH x AS (SELECT 1) INSERT INTO swanlake.t SELECT * FROM x RETURNING a"
	for name, c := range map[string]struct {
		rows  int
		opens uint64
		free  time.Duration
	}{"long": {1000, 2, 3*time.Second + 2*5*time.Second}, "short": {6, 1, 6 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			engine, one := script.New(), ints("a", 1)
			defer one.Release()
			engine.On(change, func(context.Context, string, arrow.RecordBatch) (array.RecordReader, error) {
				batches := make([]arrow.RecordBatch, c.rows)
				for i := range batches {
					batches[i] = one
				}
				return array.NewRecordReader(one.Schema(), batches)
			})
			inBubbleOn(t, testserver.Options{Profile: testserver.SwanLake(), Engine: engine}, Config{MaxSize: 1}, func(r *rig) {
				r.exec("CREATE TABLE swanlake.t (a BIGINT)")
				_, err := r.pool.Update(r.Context(), "INSERT INTO swanlake.t VALUES (?)", 0)
				require.NoError(r, err)
				r.srv.Faults().Set(testserver.Fault{On: testserver.OnBatch, SQL: "RETURNING", Do: testserver.Delay(time.Second)})
				ctx, stop := context.WithTimeout(r.Context(), 3*time.Second)
				defer stop()
				begun := time.Now()
				res, err := r.pool.QueryWithOptions(ctx, change, QueryOptions{Route: RouteQuery})
				require.NoError(r, err)
				res.Release()
				require.NoError(r, r.pool.Ping(r.Context()))
				require.LessOrEqual(r, time.Since(begun), c.free+100*ms)
				require.Equal(r, c.opens, r.pool.Stats().Opens)
			})
		})
	}
}

// So have catalogue calls and pings, as those of a probe that asks whether a service is ready.
func TestLateCatalogueCallsAndPingsCostNoConnectionOnSwanLake(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, s *SessionHandle, p *FlightSQLPool) error{
		"ping":              func(ctx context.Context, _ *SessionHandle, p *FlightSQLPool) error { return p.Ping(ctx) },
		"ping of a session": func(ctx context.Context, s *SessionHandle, _ *FlightSQLPool) error { return s.Ping(ctx) },
		"catalogue":         func(ctx context.Context, _ *SessionHandle, p *FlightSQLPool) error { return drained(p.TableTypes(ctx)) },
		"catalogue of a session": func(ctx context.Context, s *SessionHandle, _ *FlightSQLPool) error {
			return drained(s.Metadata(ctx, backend.MetadataRequest{Kind: backend.MetadataTableTypes}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, testserver.SwanLake(), Config{MaxSize: 2}, func(r *rig) {
				r.exec("CREATE TABLE swanlake.t (a BIGINT)")
				s := r.session()
				_, err := s.Update(r.Context(), "INSERT INTO swanlake.t VALUES (?)", 0)
				require.NoError(r, err)
				require.NoError(r, r.pool.Ping(r.Context())) // on the other
				opens := r.pool.Stats().Opens
				for range 3 {
					r.srv.Faults().Set(testserver.Fault{On: testserver.OnGetFlightInfo, Times: 1, Do: testserver.Delay(time.Second)})
					ctx, stop := context.WithTimeout(r.Context(), 50*ms)
					start := time.Now()
					require.ErrorIs(r, call(ctx, s, r.pool), context.DeadlineExceeded)
					require.Less(r, time.Since(start), 60*ms)
					stop()
					time.Sleep(10 * time.Second)
				}
				require.Equal(r, opens, r.pool.Stats().Opens)
				require.NoError(r, s.Close())
			})
		})
	}
}
