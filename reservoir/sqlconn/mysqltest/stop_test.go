package mysqltest

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir/sqlconn"
)

func split(statements string) []string {
	if strings.HasPrefix(statements, "BEGIN NOT ATOMIC") {
		return []string{statements}
	}
	return strings.Split(statements, "; ")
}

// busy computes for hours, under a lock that tells when it has stopped.
const busy = "SELECT GET_LOCK('busy', 0), BENCHMARK(1000000000000, MD5('x'))"

// giveUp runs a busy statement with a deadline.
func (r *rig) giveUp(run func(ctx context.Context, c *sql.Conn) error) {
	r.use(func(c *sql.Conn) {
		ctx, cancel := context.WithTimeout(r.Context(), 200*time.Millisecond)
		defer cancel()
		require.ErrorIs(r, run(ctx, c), context.DeadlineExceeded)
	})
}

// The driver closes the connection at a deadline, and MariaDB computes on; so the
// statement is stopped there, however it was sent.
func TestADeadlineStopsTheStatementOnTheServer(t *testing.T) {
	for name, send := range map[string]func(ctx context.Context, c *sql.Conn) error{
		"as text": func(ctx context.Context, c *sql.Conn) error {
			_, err := c.ExecContext(ctx, busy)
			return err
		},
		"prepared for its arguments": func(ctx context.Context, c *sql.Conn) error {
			var got, done any
			return c.QueryRowContext(ctx, busy+" WHERE ? = 1", 1).Scan(&got, &done)
		},
		"in a transaction": func(ctx context.Context, c *sql.Conn) error {
			tx, err := c.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			_, err = tx.ExecContext(ctx, busy)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			admin := r.admin()
			r.giveUp(send)
			began := time.Now()
			require.Equal(t, "1", r.ask(admin, "SELECT GET_LOCK('busy', 30)"), "it has stopped")
			t.Logf("stopped %v after the call had returned", time.Since(began).Round(100*time.Microsecond))
			require.NoError(t, <-r.told)
			r.use(func(c *sql.Conn) { require.Equal(t, "1", r.ask(c, "SELECT 1")) })
		})
	}
}

func TestTheQueryTimeoutHoldsForStatementsWithArguments(t *testing.T) {
	r := newRig(t, func(c *sqlconn.Config) { c.QueryTimeout = 200 * time.Millisecond })
	admin := r.admin()
	r.use(func(c *sql.Conn) {
		var got, done any
		require.ErrorIs(t, c.QueryRowContext(t.Context(), busy+" WHERE ? = 1", 1).Scan(&got, &done), context.DeadlineExceeded)
	})
	require.Equal(t, "1", r.ask(admin, "SELECT GET_LOCK('busy', 30)"))
	require.NoError(t, <-r.told)
}

// What it is there for: without StopSQL the statement goes on.
func TestWithoutStopSQLMariaDBComputesOn(t *testing.T) {
	r := newRig(t, func(c *sqlconn.Config) { c.Kind.IdentifySQL = "" })
	admin := r.admin()
	r.giveUp(func(ctx context.Context, c *sql.Conn) error {
		_, err := c.ExecContext(ctx, busy)
		return err
	})
	require.Equal(t, "0", r.ask(admin, "SELECT GET_LOCK('busy', 1)"), "a second later it still runs")
	require.Equal(t, "1", r.ask(admin, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE '%BENCHMARK(10%' AND ID <> CONNECTION_ID()"))
}

// A result that is left unread holds the server up too.
func TestADeadlineWhileRowsAreReadStopsTheStatement(t *testing.T) {
	r := newRig(t, nil)
	admin := r.admin()
	r.giveUp(func(ctx context.Context, c *sql.Conn) error {
		rows, err := c.QueryContext(ctx, "SELECT SQL_NO_CACHE a.seq, IF(a.seq = 20000, (SELECT GET_LOCK('busy', 0) + BENCHMARK(1000000000000, MD5('x'))), 0) FROM seq_1_to_1000000 a")
		if err != nil {
			return err
		}
		defer rows.Close() //nolint:errcheck // the error is that of the rows
		n := 0
		for rows.Next() {
			n++
		}
		require.NotZero(t, n, "it was while they were read")
		return rows.Err()
	})
	require.Equal(t, "1", r.ask(admin, "SELECT GET_LOCK('busy', 30)"))
	require.NoError(t, <-r.told)
}
