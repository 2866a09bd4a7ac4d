package sqlconn_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir/sqlconn"
)

// giveUp lets the driver give up a statement of c after a second.
func giveUp(t *testing.T, c *sqlconn.Conn, run func(ctx context.Context, conn *sql.Conn) error) {
	conn, err := c.Lend(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.ErrorIs(t, run(ctx, conn), context.DeadlineExceeded)
	require.NoError(t, sqlconn.Return(t.Context(), conn))
}

func exec(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, slow)
	return err
}

func TestAStatementThatItsDriverGivesUpIsStoppedOnTheServer(t *testing.T) {
	var told []error
	cfg := sqlconn.Config{Kind: sqlconn.MySQL, Stopped: func(err error) { told = append(told, err) }}
	bubble(t, cfg, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
		c := open(t, target)
		giveUp(t, c, exec)
		synctest.Wait()
		require.Equal(t, []string{"KILL 7"}, s.session(1).seen(), "before the borrower has given the connection back")
		require.Equal(t, 1, s.session(1).closes())
		require.NoError(t, target.Close(c))
		require.Len(t, s.conns, 2, "once")
		require.Equal(t, []error{nil}, told)
	})
}

func TestCloseWaitsForTheEndOfAStopButNotForEver(t *testing.T) {
	bubble(t, sqlconn.Config{Kind: sqlconn.MySQL}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
		c := open(t, target)
		s.hang = make(chan struct{})
		giveUp(t, c, exec)
		began := time.Now()
		require.NoError(t, target.Close(c))
		require.Equal(t, 5050*time.Millisecond, time.Since(began))
		close(s.hang)
		synctest.Wait()
	})
}

func TestAStopThatIsNotAnsweredIsNotItselfStopped(t *testing.T) {
	var told error
	bubble(t, sqlconn.Config{Kind: sqlconn.MySQL, Stopped: func(err error) { told = err }}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
		s.deaf = true
		c := open(t, target)
		giveUp(t, c, exec)
		require.NoError(t, target.Close(c))
		synctest.Wait()
		require.Len(t, s.conns, 2)
		require.ErrorIs(t, told, context.DeadlineExceeded)
	})
}

// A session that notices the end of its socket has ended before it is stopped.
func TestASessionThatHasEndedByItselfIsStopped(t *testing.T) {
	for answer, want := range map[string]string{
		"Error 1094 (HY000): Unknown thread id: 7":              "",
		"Error 1095 (HY000): You are not owner of thread 1094 ": "1095",
	} {
		told := errors.New("nobody was told")
		bubble(t, sqlconn.Config{Kind: sqlconn.MySQL, Stopped: func(err error) { told = err }}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
			s.fail = map[string]error{"KILL 7": errors.New(answer)}
			c := open(t, target)
			giveUp(t, c, exec)
			require.NoError(t, target.Close(c))
			if want == "" {
				require.NoError(t, told)
				return
			}
			require.ErrorContains(t, told, want)
		})
	}
}

// The number of a session on one server may be somebody else's on another.
func TestNothingIsStoppedOnAnotherServer(t *testing.T) {
	var told error
	bubble(t, sqlconn.Config{Kind: sqlconn.MySQL, Stopped: func(err error) { told = err }}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
		s.moves = true
		c := open(t, target)
		giveUp(t, c, exec)
		require.NoError(t, target.Close(c))
		require.Empty(t, s.session(1).seen())
		require.ErrorContains(t, told, "server of 7")
	})
}

// Or on the same one after a restart, as far as a server knows how long it has run.
func TestNothingIsStoppedOnAServerThatWasRestarted(t *testing.T) {
	const age = 61 * time.Second // of the session, when its statement is stopped
	for up, stops := range map[time.Duration]bool{
		0: false, time.Second: false, 30 * time.Second: false, age - 2*time.Second: false,
		age: true, age + time.Second: true, time.Hour: true, 1 << 62: true,
	} {
		var told error
		bubble(t, sqlconn.Config{Kind: sqlconn.MySQL, Stopped: func(err error) { told = err }}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
			c := open(t, target)
			s.started = time.Now().Add(age - up)
			time.Sleep(age - time.Second)
			giveUp(t, c, exec)
			require.NoError(t, target.Close(c))
			if stops {
				require.NoError(t, told, "%v", up)
				require.Equal(t, []string{"KILL 7"}, s.session(1).seen())
				return
			}
			require.ErrorContains(t, told, "its server runs for", "%v", up)
			require.Empty(t, s.session(1).seen())
		})
	}
	var told error
	bubble(t, sqlconn.Config{Kind: sqlconn.MySQL, Stopped: func(err error) { told = err }}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
		s.noUptime = errors.New("no privilege")
		c := open(t, target)
		giveUp(t, c, exec)
		require.NoError(t, target.Close(c))
		require.ErrorContains(t, told, "no privilege")
		require.Empty(t, s.session(1).seen())
	})
}

func TestTheQueryTimeoutStopsAStatementToo(t *testing.T) {
	bubble(t, sqlconn.Config{Kind: sqlconn.MySQL, QueryTimeout: time.Second}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
		c := open(t, target)
		giveUp(t, c, func(_ context.Context, conn *sql.Conn) error { return exec(t.Context(), conn) })
		require.NoError(t, target.Close(c))
		require.Equal(t, []string{"KILL 7"}, s.session(1).seen())
	})
}

func TestAConnectionThatDiedOfAContextDoesNotAccuseTheServer(t *testing.T) {
	bubble(t, sqlconn.Config{}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
		c := open(t, target)
		giveUp(t, c, exec)
		require.Error(t, c.Lost())
		require.False(t, sqlconn.Unreachable(c.Lost()), "%v", c.Lost())
		require.NoError(t, target.Close(c))
		require.Len(t, s.conns, 1, "the kind leaves it to the driver")
	})
	bubble(t, sqlconn.Config{}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
		c := open(t, target)
		s.session(0).dead, s.session(0).fail["INSERT"] = true, errors.New("the driver's own words")
		conn, err := c.Lend(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		_, err = conn.ExecContext(ctx, "INSERT")
		require.ErrorContains(t, err, "the driver's own words")
		cancel()
		require.NoError(t, sqlconn.Return(t.Context(), conn))
		require.ErrorIs(t, c.Lost(), driver.ErrBadConn)
		require.ErrorContains(t, c.Lost(), "the driver's own words")
		require.True(t, sqlconn.Broken(c.Lost()))
	})
}
