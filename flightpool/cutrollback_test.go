package flightpool

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/testserver"
)

// A change that is cut and then fails aborts its transaction. A statement sent before the ROLLBACK would have SwanLake
// recover from that, and the ROLLBACK say that the transaction was left.
func TestACutChangeThatFailsIsRolledBack(t *testing.T) {
	rowByRow(t, 5, 0, func(r *rig, _ QueryOptions) {
		r.exec("CREATE TABLE swanlake.u (a BIGINT PRIMARY KEY)")
		r.exec("INSERT INTO swanlake.u VALUES (1)")
		s := r.session()
		require.NoError(r, s.BeginTransaction(r.Context()))
		_, err := s.Update(r.Context(), "INSERT INTO swanlake.t VALUES (100)")
		require.NoError(r, err)
		r.srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: "swanlake.u", Do: testserver.Delay(700 * ms)})
		cut, stop := context.WithTimeout(r.Context(), 200*ms)
		defer stop()
		_, err = s.Update(cut, "INSERT INTO swanlake.u VALUES (1)")
		require.ErrorIs(r, err, context.DeadlineExceeded)
		err = s.Rollback(r.Context())
		_ = s.Close()
		require.Equal(r, "40", r.value(r.pool, "SELECT count(*) FROM swanlake.t"))
		require.NoError(r, err)
	})
}

// The ROLLBACK behind a cancel has the time that the chain has, however far the server is, whether the server confirms the cancel
// or has only taken it, as it has an action of its own.
func TestACutOnAFarServerIsRolledBack(t *testing.T) {
	confirms, takes := queueing(), queueing()
	confirms.MaxStatements, takes.MaxStatements = 0, 0
	takes.CancelActions = []string{"Stop"}
	takes.Refuse = map[string]codes.Code{"CancelFlightInfo": codes.Unimplemented, "CancelQuery": codes.Unimplemented}
	for _, rtt := range []time.Duration{10 * ms, 30 * ms, 45 * ms, 55 * ms, 65 * ms, 75 * ms, 85 * ms, 100 * ms, 130 * ms} {
		for what, p := range map[string]testserver.Profile{"confirmed": confirms, "taken": takes} {
			t.Run(what+" "+rtt.String(), func(t *testing.T) {
				inBubble(t, p, Config{MaxSize: 1, Auth: BasicAuth("u", "p"), Cancel: CancelPolicy{Actions: p.CancelActions}}, func(r *rig) {
					r.exec("CREATE TABLE t (a BIGINT)")
					if what == "taken" { // which counts where sessions are known to run one statement at a time
						for range 5 {
							r.cancelled(r.pool, "SELECT sleep('2s')", 100*ms)
							time.Sleep(time.Minute)
						}
					}
					for _, on := range []testserver.Point{testserver.OnGetFlightInfo, testserver.OnDoGet, testserver.OnDoPut, testserver.OnEnd, testserver.OnBegin, testserver.OnCancel, "Stop", testserver.OnPrepare} {
						r.srv.Faults().Set(testserver.Fault{On: on, Do: testserver.Delay(rtt)})
					}
					s := r.session()
					require.NoError(r, s.BeginTransaction(r.Context()))
					_, err := s.Update(r.Context(), "INSERT INTO t VALUES (1)")
					require.NoError(r, err)
					cut, stop := context.WithTimeout(r.Context(), time.Second)
					defer stop()
					_, err = firstValue(cut, s, "SELECT sleep('1h')")
					require.ErrorIs(r, err, context.DeadlineExceeded)
					err = s.Rollback(r.Context())
					_ = s.Close()
					r.srv.Faults().Clear()
					require.Equal(r, "0", r.value(r.pool, "SELECT count(*) FROM t"))
					require.NoError(r, err)
				})
			})
		}
	}
}

// A server that confirms cancels is asked to stop a change that is several to it, as it is to stop any other.
func TestAChangeOfSeveralRowsIsCancelledWhereTheServerDoesThat(t *testing.T) {
	p := queueing()
	p.MaxStatements = 0
	inBubble(t, p, Config{MaxSize: 1, Auth: BasicAuth("u", "p")}, func(r *rig) {
		r.exec("CREATE TABLE t (a BIGINT)")
		r.cancelled(r.pool, "SELECT sleep('1h')", 100*ms)
		time.Sleep(time.Minute)
		r.srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: "INSERT", Do: testserver.Delay(time.Hour)})
		rows := ints("a", 1, 2, 3)
		defer rows.Release()
		s := r.session()
		require.NoError(r, s.BeginTransaction(r.Context()))
		cut, stop := context.WithTimeout(r.Context(), 200*ms)
		defer stop()
		_, err := s.UpdateWithRecordBatch(cut, "INSERT INTO t VALUES (?)", rows)
		require.ErrorIs(r, err, context.DeadlineExceeded)
		start := time.Now()
		require.NoError(r, s.Rollback(r.Context()))
		require.LessOrEqual(r, time.Since(start), time.Second, "nobody waits for its answer")
		_ = s.Close()
		r.srv.Faults().Clear()
		require.Equal(r, "0", r.value(r.pool, "SELECT count(*) FROM t"))
		require.Zero(r, r.pool.Stats().CancelsUnconfirmed)
	})
}
