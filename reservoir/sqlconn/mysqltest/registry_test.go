package mysqltest

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/testserver/localdeps"
)

// A real MariaDB from text: two users, each himself on the server, a deadline that
// does not accuse the server, and a server that goes away and comes back.
func TestARegistryOnMariaDBFromText(t *testing.T) {
	server, err := localdeps.StartMariaDB(t.Context(), localdeps.MariaDBOptions{Init: []string{
		"CREATE USER IF NOT EXISTS app IDENTIFIED BY 'o/n)@(e:?#%25'", "GRANT ALL ON test.* TO app",
		"CREATE USER IF NOT EXISTS report IDENTIFIED BY 'two'", "GRANT SELECT ON test.* TO report",
	}})
	require.NoError(t, err)
	defer server.Close()
	health := make(chan bool, 8)
	r, err := registry.NewWith(registry.Config{Health: func(_ string, down *registry.UnhealthyError) { health <- down == nil }})
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close(t.Context())) }()
	require.NoError(t, r.ApplyDDL(t.Context(), fmt.Sprintf(`
		CREATE SERVER maria FOREIGN DATA WRAPPER mariadb_fdw OPTIONS (host '%s', port '%d', dbname 'test', -- and what follows is the driver's
		    "interpolateParams" 'true', charset 'utf8mb4,utf8', time_zone '''+01:00''', health_check_interval '500', failure_threshold '1', health_check_type 'full_validate');
		CREATE USER MAPPING FOR ann SERVER maria OPTIONS (user 'app', password 'o/n)@(e:?#%%25');
		CREATE USER MAPPING FOR PUBLIC SERVER maria OPTIONS (user 'report', password 'two')`, server.Host, server.Port)))
	for user, want := range map[string]string{"ann": "app@%", "bob": "report@%"} {
		for range 3 {
			borrow(t, r, user, func(c *sql.Conn) {
				var name string
				require.NoError(t, c.QueryRowContext(t.Context(), "SELECT CURRENT_USER() WHERE ? = 1", 1).Scan(&name))
				require.Equal(t, want, name)
			})
		}
	}
	borrow(t, r, "ann", func(c *sql.Conn) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := c.ExecContext(ctx, "SELECT SLEEP(100)")
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
	require.True(t, r.Healthy("maria"), "one fault of the connection would be enough")
	require.NoError(t, r.CheckNow(t.Context(), "maria"))

	server.Kill()
	_ = r.CheckNow(t.Context(), "maria") // or a check of the pools has found out before
	require.False(t, <-health)
	_, err = r.Acquire(t.Context(), "maria", "ann")
	var down *registry.UnhealthyError
	require.ErrorAs(t, err, &down)
	require.Error(t, down.Reason)
	require.NoError(t, server.Start(t.Context()))
	require.True(t, <-health)
	borrow(t, r, "bob", func(c *sql.Conn) { require.NoError(t, c.PingContext(t.Context())) })
}

// A statement is stopped over a second connection, which this user may not have.
func TestAStatementThatCannotBeStoppedIsLogged(t *testing.T) {
	server, err := localdeps.StartMariaDB(t.Context(), localdeps.MariaDBOptions{Init: []string{
		"CREATE USER IF NOT EXISTS app IDENTIFIED BY 'o/n)@(e:?#%25' WITH MAX_USER_CONNECTIONS 1",
	}})
	require.NoError(t, err)
	defer server.Close()
	var log bytes.Buffer
	r, err := registry.NewWith(registry.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	require.NoError(t, r.ApplyDDL(t.Context(), fmt.Sprintf(`
		CREATE SERVER maria FOREIGN DATA WRAPPER mariadb_fdw OPTIONS (host '%s', port '%d', dbname '');
		CREATE USER MAPPING FOR PUBLIC SERVER maria OPTIONS (user 'app', password 'o/n)@(e:?#%%25')`, server.Host, server.Port)))
	borrow(t, r, "ann", func(c *sql.Conn) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := c.ExecContext(ctx, "SELECT SLEEP(2)")
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
	require.NoError(t, r.Close(t.Context())) // waits for the stop
	require.Contains(t, log.String(), "could not be stopped")
	require.Contains(t, log.String(), "max_user_connections")
	require.Contains(t, log.String(), "server=maria user=ann")
}

// The driver closes its connection at a call beside open rows, and calls that a bad
// connection: the call returns, and the server is not blamed.
func TestACallBesideOpenRowsIsNoFaultOfTheServers(t *testing.T) {
	server, err := localdeps.StartMariaDB(t.Context(), localdeps.MariaDBOptions{})
	require.NoError(t, err)
	defer server.Close()
	r := registry.New()
	defer func() { require.NoError(t, r.Close(t.Context())) }()
	require.NoError(t, r.ApplyDDL(t.Context(), fmt.Sprintf(`
		CREATE SERVER maria FOREIGN DATA WRAPPER mariadb_fdw OPTIONS (host '%s', port '%d', dbname 'test', failure_threshold '1');
		CREATE USER MAPPING FOR ann SERVER maria OPTIONS (user 'root')`, server.Host, server.Port)))
	for range 3 {
		borrow(t, r, "ann", func(c *sql.Conn) {
			rows, err := c.QueryContext(t.Context(), "SELECT seq FROM seq_1_to_100000")
			require.NoError(t, err)
			defer rows.Close() //nolint:errcheck // they have failed
			require.True(t, rows.Next())
			_, err = c.ExecContext(t.Context(), "DO 1")
			require.Error(t, err)
			for rows.Next() {
				continue
			}
			require.Error(t, rows.Err())
		})
		require.True(t, r.Healthy("maria"))
	}
	require.Zero(t, r.Stats().ConnectionErrors)
}

func borrow(t *testing.T, r *registry.Registry, user string, f func(c *sql.Conn)) {
	c, err := r.Acquire(t.Context(), "maria", user)
	require.NoError(t, err)
	f(c.SQL())
	require.NoError(t, c.Release())
}
