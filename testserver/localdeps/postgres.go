package localdeps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
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
	Port int

	dir   string
	child *child
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
	p := &Postgres{Host: "127.0.0.1", dir: dir}
	if err := p.start(ctx, bin, opts); err != nil {
		p.Close()
		return nil, fmt.Errorf("localdeps: postgres: %w", err)
	}
	return p, nil
}

func (p *Postgres) start(ctx context.Context, bin string, opts PostgresOptions) error {
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
	// The shell ends the server when its own input ends.
	args := []string{
		"-c", `"$0" "$@" </dev/null & pid=$!; trap 'kill -QUIT $pid' TERM; read _; kill -INT $pid; wait $pid`,
		filepath.Join(bin, "postgres"), "-D", data, "-h", p.Host, "-p", strconv.Itoa(p.Port), "-k", p.dir, "-F",
		"-N", strconv.Itoa(max(opts.MaxConnections, 0)),
	}
	if opts.MaxConnections == 0 {
		args[len(args)-1] = "200"
	}
	for _, setting := range opts.Settings {
		args = append(args, "-c", setting)
	}
	cmd := exec.Command("/bin/sh", args...) //nolint:noctx // it outlives ctx, Close ends it
	cmd.SysProcAttr, cmd.Dir = run, p.dir
	if p.child, err = startChild(cmd); err != nil {
		return err
	}
	return p.child.until(20*time.Second, func() error {
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

// Close ends the server, its connections and its files. It may be called
// again.
func (p *Postgres) Close() {
	if p.child != nil {
		p.child.close()
	}
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

// unprivileged hands dir to a user whom PostgreSQL accepts: it refuses root.
func unprivileged(dir string) (*syscall.SysProcAttr, error) {
	if os.Geteuid() != 0 {
		return &syscall.SysProcAttr{Setpgid: true}, nil
	}
	who, err := user.Lookup("postgres")
	if err != nil {
		if who, err = user.Lookup("nobody"); err != nil {
			return nil, err
		}
	}
	uid, err := strconv.ParseUint(who.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(who.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	if err := os.Chown(dir, int(uid), int(gid)); err != nil {
		return nil, err
	}
	return &syscall.SysProcAttr{
		Setpgid:    true,
		Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), NoSetGroups: false},
	}, nil
}
