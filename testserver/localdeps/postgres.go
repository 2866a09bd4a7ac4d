package localdeps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgresOptions sets up a server. The zero value is good.
type PostgresOptions struct {
	MaxConnections int      // 200 by default
	Settings       []string // more of them, as "name=value"
}

// Postgres is a running server with the user postgres, whom it trusts.
type Postgres struct {
	Host string // always 127.0.0.1
	Port int    // the same after a restart

	server, dir string
	args        []string
	child       *childProcess // nil while it does not run
}

const installPostgres = "PostgreSQL is not installed: apt-get install -y postgresql"

// StartPostgres makes an empty database cluster and starts a server on it,
// which takes about a second. ctx bounds the start. The caller calls Close.
func StartPostgres(ctx context.Context, opts PostgresOptions) (*Postgres, error) {
	bin, err := postgresFolder()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "localdeps-pg-")
	if err != nil {
		return nil, err
	}
	p := &Postgres{Host: "127.0.0.1", server: filepath.Join(bin, "postgres"), dir: dir}
	if err = p.create(ctx, bin, opts); err == nil {
		err = p.Start(ctx)
	}
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("localdeps: postgres: %w", err)
	}
	return p, nil
}

func (p *Postgres) create(ctx context.Context, bin string, opts PostgresOptions) error {
	run, err := unprivileged(p.dir)
	if err != nil {
		return err
	}
	data := filepath.Join(p.dir, "data")
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"),
		"-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N")
	initdb.SysProcAttr, initdb.Dir = run, p.dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	if p.Port, err = freePort(); err != nil {
		return err
	}
	p.args = []string{
		"-D", data, "-h", p.Host, "-p", strconv.Itoa(p.Port), "-k", p.dir, "-F",
		"-N", strconv.Itoa(max(opts.MaxConnections, 0)),
	}
	if opts.MaxConnections == 0 {
		p.args[len(p.args)-1] = "200"
	}
	for _, setting := range opts.Settings {
		p.args = append(p.args, "-c", setting)
	}
	return nil
}

// Start starts the server again after Kill, on the same port and data.
func (p *Postgres) Start(ctx context.Context) error {
	if p.child != nil {
		return nil
	}
	run, err := unprivileged(p.dir)
	if err != nil {
		return err
	}
	// The shell ends the server when its own input ends.
	script := `"$0" "$@" </dev/null & pid=$!; trap 'kill -QUIT $pid' TERM; read _; kill -INT $pid; wait $pid`
	cmd := exec.Command("/bin/sh", append([]string{"-c", script, p.server}, p.args...)...) //nolint:noctx // it outlives ctx, Close ends it
	cmd.SysProcAttr, cmd.Dir = run, p.dir
	if p.child, err = startChild(cmd); err != nil {
		return err
	}
	return p.child.waitReady(20*time.Second, func() error {
		conn, err := pgx.Connect(ctx, p.DSN())
		if err != nil {
			return err
		}
		return conn.Close(ctx)
	})
}

// DSN connects to the server's database postgres, without TLS.
func (p *Postgres) DSN() string {
	return fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", p.Addr())
}

// Addr is the server's host:port.
func (p *Postgres) Addr() string { return fmt.Sprintf("%s:%d", p.Host, p.Port) }

// Kill ends the server at once, without a checkpoint or a word to its clients
// beyond that. What was committed is kept.
func (p *Postgres) Kill() {
	if p.child != nil {
		_ = p.child.cmd.Process.Signal(syscall.SIGTERM) // it may be gone already
		p.stop()
	}
}

// Freeze stops every process of the server (SIGSTOP), so that it answers
// nothing and its connections stay open, until thaw is called. Only Unix can.
func (p *Postgres) Freeze(ctx context.Context) (thaw func(), err error) {
	conn, err := pgx.Connect(ctx, p.DSN())
	if err != nil {
		return nil, err
	}
	var pids []int32
	// The first is the postmaster, which starts no other from then on; this
	// session's own is the last.
	err = conn.QueryRow(ctx, `select array[split_part(pg_read_file('postmaster.pid'), E'\n', 1)::int]
		|| (select array_agg(pid order by pid = pg_backend_pid()) from pg_stat_activity)`).Scan(&pids)
	if err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	for _, pid := range pids {
		stand(int(pid), true)
	}
	return func() {
		for _, pid := range pids {
			stand(int(pid), false)
		}
		_ = conn.Close(ctx) // it has nothing left to do
	}, nil
}

func (p *Postgres) stop() {
	if p.child != nil {
		p.child.close()
		p.child = nil
	}
}

// Close ends the server, its connections and its files. It may be called
// again.
func (p *Postgres) Close() {
	p.stop()
	_ = os.RemoveAll(p.dir) // the folder is temporary anyway
}

// postgresFolder is where initdb and postgres are: Debian keeps them off PATH.
func postgresFolder() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), "postgres")); err == nil {
				return filepath.Dir(path), nil
			}
		}
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", errors.New("localdeps: " + installPostgres)
	}
	sort.Strings(found)
	return filepath.Dir(found[len(found)-1]), nil
}
