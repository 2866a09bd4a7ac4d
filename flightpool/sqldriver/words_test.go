package sqldriver_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/sqldriver"
	"github.com/flightpool/flightpool/testserver"
)

// sqlFaults are what a server or a proxy does in place of an answer. A refusal comes before
// anything is done.
func sqlFault(rng *rand.Rand) testserver.Fault {
	points := []testserver.Point{testserver.OnEnd, testserver.OnEnd, testserver.OnBegin, testserver.OnDoPut, testserver.OnGetFlightInfo, testserver.OnDoGet, testserver.OnPrepare, "ClosePreparedStatement"}
	f := testserver.Fault{On: points[rng.IntN(len(points))], Skip: rng.IntN(3), Times: 1 + rng.IntN(3), After: rng.IntN(2) == 0}
	page := "unexpected HTTP status code received from server: 404 (Not Found); transport: received unexpected content-type \"text/html\""
	switch rng.IntN(9) {
	case 0:
		f.Do = testserver.Kill()
	case 1:
		f.Do = testserver.Freeze()
	case 2:
		f.Do = testserver.Delay(time.Duration(rng.IntN(8)) * time.Second)
	case 3:
		f.Do, f.After = testserver.Evict(), false
	case 4:
		f.Do, f.After = testserver.Fail(codes.PermissionDenied, "RBAC: access denied"), false
	case 5:
		f.Do, f.After = testserver.Fail(codes.Unauthenticated, "Jwt is missing"), false
	case 6:
		f.Do = testserver.Fail(codes.Unimplemented, page)
	case 7:
		f.Do = testserver.Fail(codes.Internal, "stream terminated by RST_STREAM with error code: PROTOCOL_ERROR")
	default:
		f.Do = testserver.Fail(codes.Unavailable, "upstream connect error or disconnect/reset before headers. reset reason: connection termination")
	}
	return f
}

// sqlWords is what database/sql has said of rows: those outside of transactions, and of each transaction.
type sqlWords struct {
	db   *sql.DB
	conn *sql.Conn
	stmt *sql.Stmt
	next int
	said map[int]sqlWord
	log  []string
}

type sqlWord struct {
	least, most int
	why         string
}

func (w *sqlWords) value() int { w.next++; return w.next }

func (w *sqlWords) alone(ctx context.Context, rng *rand.Rand) {
	v := w.value()
	var err error
	switch rng.IntN(6) {
	case 4:
		var got int
		err = w.db.QueryRowContext(ctx, fmt.Sprintf("INSERT INTO swanlake.t VALUES (%d) RETURNING a", v)).Scan(&got)
	case 5: // its rows are left before their end
		var rows *sql.Rows
		if rows, err = w.conn.QueryContext(ctx, fmt.Sprintf("INSERT INTO swanlake.t VALUES (%d) RETURNING a", v)); err == nil {
			err = errors.Join(rows.Close(), rows.Err())
		}
	case 0:
		_, err = w.db.ExecContext(ctx, "INSERT INTO swanlake.t VALUES (?)", v)
	case 1:
		_, err = w.conn.ExecContext(ctx, fmt.Sprintf("INSERT INTO swanlake.t VALUES (%d)", v))
	case 2:
		if w.stmt == nil {
			w.stmt, _ = w.db.PrepareContext(ctx, "INSERT INTO swanlake.t VALUES (?)")
		}
		if w.stmt == nil {
			return
		}
		_, err = w.stmt.ExecContext(ctx, v)
	default:
		_, err = w.db.ExecContext(ctx, fmt.Sprintf("INSERT INTO swanlake.t VALUES (%d)", v))
	}
	word := sqlWord{0, 1, fmt.Sprintf("alone: %v", err)}
	if err == nil {
		word.least = 1
	} else if flightpool.SafeToRetry(err) {
		word.most = 0
	}
	w.say(v, word)
}

func (w *sqlWords) say(v int, word sqlWord) {
	w.said[v] = word
	w.log = append(w.log, fmt.Sprintf("%d: %s", v, word.why))
}

func (w *sqlWords) inTx(ctx context.Context, rng *rand.Rand) {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		w.log = append(w.log, fmt.Sprintf("begin: %v", err))
		return
	}
	rows, failed := map[int]bool{}, error(nil)
	for range 1 + rng.IntN(3) {
		v := w.value()
		if rng.IntN(3) == 0 {
			rows, err := tx.QueryContext(ctx, "SELECT * FROM generate(5000, 100)") //nolint:sqlclosecheck // the transaction closes them
			if err == nil && rows.Next() && rng.IntN(2) == 0 {
				err = rows.Close()
			}
			failed = errors.Join(failed, err)
		}
		if w.stmt != nil && rng.IntN(3) == 0 {
			_, err = tx.StmtContext(ctx, w.stmt).ExecContext(ctx, v)
		} else {
			_, err = tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO swanlake.t VALUES (%d)", v))
		}
		rows[v] = err == nil
		failed = errors.Join(failed, err)
	}
	if rng.IntN(4) == 0 {
		time.Sleep([]time.Duration{5 * time.Second, 31 * time.Second, 16 * time.Minute}[rng.IntN(3)])
	}
	how := "commit"
	if rng.IntN(3) == 0 {
		how, err = "rollback", tx.Rollback()
	} else if err = tx.Commit(); err == nil {
		for v, stored := range rows {
			w.say(v, sqlWord{b2i(stored), b2i(stored), "committed"})
		}
		return
	}
	for v := range rows {
		word := sqlWord{0, 0, fmt.Sprintf("%s: %v (failed: %v)", how, err, failed)}
		if errors.Is(err, flightpool.ErrCommitUnknown) || how == "commit" && errors.Is(err, flightpool.ErrSessionLost) {
			word.most = 1
		}
		w.say(v, word)
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Whatever fails at whichever RPC: nothing that database/sql repeats is stored twice, and what it says of a
// statement and a transaction is so.
func TestEveryWordOfDatabaseSQLHoldsWhateverAProxyAnswers(t *testing.T) {
	seed, _ := strconv.ParseUint(os.Getenv("PROVE_SEED"), 10, 64)
	many, _ := strconv.Atoi(os.Getenv("PROVE_SCENES"))
	for i := range uint64(max(many, 60)) {
		for _, profile := range []testserver.Profile{testserver.Strict(), testserver.SwanLake(), testserver.GizmoSQL()} {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed+i, 11)) //nolint:gosec // a repeatable sequence
				profile.JanitorEvery, profile.AppendTo = 0, "swanlake"
				opts := testserver.Options{Profile: profile, Listen: testserver.InMemory}
				cfg := flightpool.Config{MaxSize: 3, MaxLifetime: -1, HealthCheck: flightpool.HealthCheck{Interval: -1}}
				if profile.Name == "gizmosql" {
					opts.Users, cfg.Auth = map[string]string{"u": "p"}, flightpool.BasicAuth("u", "p")
				}
				if rng.IntN(3) == 0 {
					cfg.StatementCache = 4
				}
				srv, err := testserver.Start(opts)
				require.NoError(t, err)
				cfg.Dialer = srv.Dial
				pool, err := flightpool.New(t.Context(), "grpc://server:1", cfg)
				require.NoError(t, err)
				db := sqldriver.OpenDB(pool)
				_, err = db.ExecContext(t.Context(), "CREATE TABLE swanlake.t (a BIGINT)")
				require.NoError(t, err)
				w := &sqlWords{db: db, said: map[int]sqlWord{}}
				w.conn, err = db.Conn(t.Context())
				require.NoError(t, err)
				for range 2 + rng.IntN(3) {
					for range rng.IntN(3) {
						f := sqlFault(rng)
						srv.Faults().Set(f)
						w.log = append(w.log, fmt.Sprintf("FAULT %s skip %d times %d after %t", f.On, f.Skip, f.Times, f.After))
					}
					ctx, stop := context.WithTimeout(t.Context(), time.Duration(rng.IntN(4000)+200)*time.Millisecond)
					if rng.IntN(2) == 0 {
						w.alone(ctx, rng)
					} else {
						w.inTx(ctx, rng)
					}
					stop()
				}
				_ = w.conn.Close()
				time.Sleep(2 * time.Minute)
				srv.Faults().Clear()
				srv.Faults().ThawConns()
				srv.Faults().EvictSessions()
				time.Sleep(2 * time.Minute)
				stored := map[int]int{}
				rows, err := db.QueryContext(t.Context(), "SELECT * FROM swanlake.t")
				require.NoError(t, err)
				for rows.Next() {
					var v int
					require.NoError(t, rows.Scan(&v))
					stored[v]++
				}
				require.NoError(t, rows.Err())
				require.NoError(t, rows.Close())
				for v, word := range w.said {
					if n := stored[v]; n < word.least || n > word.most {
						t.Errorf("seed %d, %s: %d is stored %d times: %s\n%q", seed+i, profile.Name, v, n, word.why, w.log)
					}
				}
				if w.stmt != nil {
					_ = w.stmt.Close()
				}
				_ = db.Close()
				srv.Faults().EvictSessions()
				_ = pool.Close(context.WithoutCancel(t.Context()))
				require.NoError(t, srv.Close())
			})
		}
	}
}
