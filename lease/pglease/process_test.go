package pglease_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease/fleet"
	"github.com/flightpool/flightpool/lease/pglease"
)

const memberVariable = "PGLEASE_MEMBER"

// settings are what a member is told.
type settings struct {
	DSN, Server string // the database of the leases; what the leases are for
	Config      fleet.Config
	Callers     int
}

// beMember has callers that open connections, each with a lease, use them and
// close them, until its input ends.
func beMember(text string) {
	var s settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	pool, err := pglease.Connect(ctx, s.DSN)
	if err != nil {
		log.Fatal(err)
	}
	s.Config.Logger = quiet
	leases, err := pglease.New(ctx, pool, s.Config)
	if err != nil {
		log.Fatal(err)
	}
	var callers sync.WaitGroup
	for range s.Callers {
		callers.Go(func() {
			for ctx.Err() == nil {
				useOne(ctx, leases, s.Server)
			}
		})
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent says so
	stop()
	callers.Wait()
	if err := leases.Close(context.Background()); err != nil {
		log.Fatal(err)
	}
	pool.Close()
}

// useOne gives its lease back once the server has said that the connection is
// no more.
func useOne(ctx context.Context, leases *fleet.Leases, address string) {
	release, err := leases.Acquire(ctx)
	if err != nil {
		time.Sleep(20 * time.Millisecond) // the database does not answer
		return
	}
	defer release()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Read(make([]byte, 1)); err != nil { // it is counted
		log.Fatal(err)
	}
	time.Sleep(50*time.Millisecond + rand.N(500*time.Millisecond))
	_, _ = conn.Write([]byte("x")) // the next line tells
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		log.Fatal(err)
	}
}

// A counter is a server that counts connections as a database does: from when
// they are accepted until their process says, or its end shows, that they are
// over.
type counter struct {
	listener      net.Listener
	running       sync.WaitGroup
	mu            sync.Mutex
	now, max, all int
}

func newCounter(t *testing.T) *counter {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &counter{listener: listener}
	c.running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			c.running.Go(func() { c.serve(conn) })
		}
	})
	return c
}

func (c *counter) serve(conn net.Conn) {
	c.add(1)
	_, _ = conn.Write([]byte("x")) // it is counted
	_, _ = conn.Read(make([]byte, 1))
	c.add(-1)
	_, _ = conn.Write([]byte("x")) // it is no more; who was killed does not hear it
	_ = conn.Close()
}

func (c *counter) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += n
	c.all += max(n, 0)
	c.max = max(c.max, c.now)
}

func (c *counter) counts() (now, most, all int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now, c.max, c.all
}

// A member is a process.
type member struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

func startMember(t *testing.T, s settings) *member {
	self, err := os.Executable()
	require.NoError(t, err)
	text, err := json.Marshal(s)
	require.NoError(t, err)
	m := &member{cmd: exec.CommandContext(t.Context(), self)}
	m.cmd.Env = append(os.Environ(), memberVariable+"="+string(text))
	m.cmd.Stderr = os.Stderr
	m.stdin, err = m.cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, m.cmd.Start())
	return m
}

func (m *member) signal(t *testing.T, s syscall.Signal) {
	require.NoError(t, m.cmd.Process.Signal(s))
}

// Twenty processes share a limit. Half of them are killed, some while they
// stand still; the others stand still for a while, twice; the database is
// killed and started, stands still, and its clock is set. The connections,
// those of processes that stand still counted, never exceed the limit. The
// leases of the dead are back within Lease and Grace, the time in which the
// database could not be asked added. In the end every lease is there.
func TestTwentyProcessesKilledAndPaused(t *testing.T) {
	const limit, processes = 40, 20
	clock := unique("clock")
	sql(t, fmt.Sprintf(`create schema %[1]s; create table %[1]s.ahead (by interval); insert into %[1]s.ahead values ('0');
		create function %[1]s.clock_timestamp() returns timestamptz language sql as
		'select pg_catalog.clock_timestamp() + by from %[1]s.ahead'`, clock))
	cfg := fleet.Config{
		Table: newTable(t), Budget: "b", Limit: limit, Lease: 6 * time.Second, Grace: 4 * time.Second,
		OpenTimeout: time.Second, RequestTimeout: 500 * time.Millisecond, Shards: 2,
	}
	c := newCounter(t)
	s := settings{DSN: server.DSN() + "&options=-c%20search_path%3D" + clock + "%2Cpg_catalog", Server: c.listener.Addr().String(), Config: cfg, Callers: 4}
	var members []*member
	for range processes {
		members = append(members, startMember(t, s))
	}
	store := newStore(t, connect(t, server.DSN()), cfg.Table)
	known := func() map[int]int {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		f, err := fleet.Inspect(ctx, store, "b")
		pids := map[int]int{}
		if err == nil {
			for _, m := range f.Members {
				pids[m.PID] += m.Leases
			}
		}
		return pids
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for have := map[int]int{}; len(have) < processes || have[0] > 0; have = known() {
		<-tick.C
	}
	for range more() {
		dead, others := members[:processes/2], members[processes/2:]
		for i, m := range dead {
			if i%2 == 0 {
				m.signal(t, syscall.SIGSTOP)
			}
		}
		for _, m := range dead {
			m.signal(t, syscall.SIGKILL)
		}
		killed := time.Now()
		pause := func(some []*member, d time.Duration, meanwhile func()) {
			for _, m := range some {
				m.signal(t, syscall.SIGSTOP)
			}
			end := time.After(d)
			meanwhile()
			<-end
			for _, m := range some {
				m.signal(t, syscall.SIGCONT)
			}
		}
		pause(others[:5], 2*time.Second, func() {})
		sql(t, "update "+clock+".ahead set by = '-1 hour'")
		out := time.Now()
		restart(t, nil)
		outage := time.Since(out)
		pause(others[5:], 2*time.Second, func() {
			thaw, err := server.Freeze(t.Context())
			require.NoError(t, err)
			time.Sleep(time.Second)
			thaw()
			outage += time.Second
		})
		sql(t, "update "+clock+".ahead set by = '5 hours'")
		for {
			left := known()
			gone := len(left) > 0
			for _, m := range dead {
				gone = gone && left[m.cmd.Process.Pid] == 0
			}
			if gone {
				break
			}
			<-tick.C
		}
		back := time.Since(killed)
		t.Logf("PGLEASE killed=%d/%d back_s=%.1f limit_s=%.0f outage_s=%.1f", len(dead), processes, back.Seconds(), (cfg.Lease + cfg.Grace).Seconds(), outage.Seconds())
		require.Less(t, back, cfg.Lease+cfg.Grace+outage+2*time.Second) // the machine may be busy
		for i, m := range dead {
			require.Error(t, m.cmd.Wait())
			members[i] = startMember(t, s)
		}
	}
	for _, m := range members {
		_ = m.stdin.Close()
	}
	for _, m := range members {
		require.NoError(t, m.cmd.Wait())
	}
	now, most, all := c.counts()
	t.Logf("PGLEASE connections=%d most=%d of %d", all, most, limit)
	require.Zero(t, now)
	require.Equal(t, limit, most)
	require.Greater(t, all, 3*limit)
	require.NoError(t, c.listener.Close())
	c.running.Wait()

	cfg.Logger = quiet
	last, err := pglease.New(t.Context(), connect(t, server.DSN()), cfg)
	require.NoError(t, err)
	require.Zero(t, last.Stats().Used, "nothing is left behind")
	var releases []func()
	for range limit {
		release, err := last.Acquire(t.Context())
		require.NoError(t, err)
		releases = append(releases, release)
	}
	for _, release := range releases {
		release()
	}
	require.NoError(t, last.Close(t.Context()))
}
