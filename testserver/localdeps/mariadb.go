package localdeps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// MariaDBOptions sets up a server. The zero value is good.
type MariaDBOptions struct {
	MaxConnections int      // 200 by default
	Settings       []string // more of them, as "name=value"
	// Init are statements that run at every start before anybody can connect,
	// to make users for example. A database "test" is there without them.
	Init []string
}

// MariaDB is a server with the user root, who has no password. Its methods are
// for one goroutine.
type MariaDB struct {
	Host string // always 127.0.0.1
	Port int    // the same after a restart

	server, dir string
	args        []string
	child       *childProcess // nil while it does not run
}

const installMariaDB = "MariaDB is not installed: apt-get install -y mariadb-server-core"

// StartMariaDB makes an empty data folder and starts a server on it, which takes
// about two seconds. ctx bounds the start. The caller calls Close.
func StartMariaDB(ctx context.Context, opts MariaDBOptions) (*MariaDB, error) {
	server, err := mariadbd()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "localdeps-maria-")
	if err != nil {
		return nil, err
	}
	m := &MariaDB{Host: "127.0.0.1", server: server, dir: dir}
	if err = m.create(ctx, opts); err == nil {
		err = m.Start(ctx)
	}
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("localdeps: mariadb: %w", err)
	}
	return m, nil
}

// create makes the data folder, as mariadb-install-db does it, which needs more
// packages than the server.
func (m *MariaDB) create(ctx context.Context, opts MariaDBOptions) error {
	data := filepath.Join(m.dir, "data")
	if err := os.Mkdir(data, 0o755); err != nil {
		return err
	}
	_, err := unprivileged(data)
	if err != nil {
		return err
	}
	run, err := unprivileged(m.dir)
	if err != nil {
		return err
	}
	tables, err := systemTables(m.server)
	if err != nil {
		return err
	}
	m.args = []string{"--no-defaults", "--datadir=" + data, "--tmpdir=" + m.dir,
		"--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M"}
	bootstrap := exec.CommandContext(ctx, m.server, append(m.args, "--bootstrap")...)
	bootstrap.SysProcAttr, bootstrap.Dir, bootstrap.Stdin = run, m.dir, strings.NewReader(tables)
	if out, err := bootstrap.CombinedOutput(); err != nil {
		return fmt.Errorf("bootstrap: %w: %s", err, out)
	}
	init := strings.Join(append([]string{"CREATE DATABASE IF NOT EXISTS test"}, opts.Init...), ";\n") + ";\n"
	initFile := filepath.Join(m.dir, "init.sql")
	if err := os.WriteFile(initFile, []byte(init), 0o644); err != nil {
		return err
	}
	if m.Port, err = freePort(); err != nil {
		return err
	}
	most := opts.MaxConnections
	if most == 0 {
		most = 200
	}
	m.args = append(m.args, "--bind-address="+m.Host, "--port="+strconv.Itoa(m.Port), "--socket="+filepath.Join(m.dir, "s"),
		"--pid-file="+filepath.Join(m.dir, "pid"), "--init-file="+initFile, "--max-connections="+strconv.Itoa(most),
		"--skip-name-resolve", "--innodb-flush-log-at-trx-commit=0", "--performance-schema=off", "--thread-cache-size=64")
	for _, setting := range opts.Settings {
		m.args = append(m.args, "--"+setting)
	}
	return nil
}

// Start starts the server again after Stop or Kill, on the same port and data.
func (m *MariaDB) Start(ctx context.Context) error {
	if m.child != nil {
		return nil
	}
	run, err := unprivileged(m.dir)
	if err != nil {
		return err
	}
	// The shell ends the server when its own input ends.
	script := `"$0" "$@" </dev/null & pid=$!; read _; kill -TERM $pid; wait $pid`
	cmd := exec.Command("/bin/sh", append([]string{"-c", script, m.server}, m.args...)...) //nolint:noctx // it outlives ctx, Close ends it
	cmd.SysProcAttr, cmd.Dir = run, m.dir
	if m.child, err = startChild(cmd); err != nil {
		return err
	}
	return m.child.waitReady(20*time.Second, func() error { return m.checkGreeting(ctx) })
}

// checkGreeting asks whether the server takes connections: it speaks first, and begins
// with the number of its protocol.
func (m *MariaDB) checkGreeting(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", m.Addr())
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // only read
	if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	hello := make([]byte, 5)
	if _, err := io.ReadFull(conn, hello); err != nil {
		return err
	}
	if hello[4] != 10 {
		return fmt.Errorf("it says %q", hello)
	}
	return nil
}

// Stop shuts the server down as an administrator would.
func (m *MariaDB) Stop() {
	if m.child != nil {
		m.child.close()
		m.child = nil
	}
}

// Kill ends the server at once, as a crash would. What was committed is kept.
func (m *MariaDB) Kill() {
	if m.child != nil {
		killGroup(m.child.cmd.Process)
		m.Stop()
	}
}

// Close ends the server and removes its files. It may be called again.
func (m *MariaDB) Close() {
	m.Kill()
	_ = os.RemoveAll(m.dir) // the folder is temporary anyway
}

// Addr is the server's host:port.
func (m *MariaDB) Addr() string { return net.JoinHostPort(m.Host, strconv.Itoa(m.Port)) }

// DSN connects root to the database test, as the Go driver for MySQL writes it.
func (m *MariaDB) DSN() string { return "root@tcp(" + m.Addr() + ")/test" }

// mariadbd finds the server, which Debian keeps off the PATH of most users.
func mariadbd() (string, error) {
	for _, name := range []string{"mariadbd", "/usr/sbin/mariadbd"} {
		if path, err := exec.LookPath(name); err == nil {
			return filepath.EvalSymlinks(path)
		}
	}
	return "", errors.New("localdeps: " + installMariaDB)
}

// systemTables is the text that makes the server's own tables. It is installed
// beside the server, under one of two names.
func systemTables(server string) (string, error) {
	prefix := filepath.Dir(filepath.Dir(server))
	for _, name := range []string{"mysql", "mariadb"} {
		share := filepath.Join(prefix, "share", name)
		text := bytes.NewBufferString("CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket = NULL;\n")
		var faults []error
		for _, part := range []string{"_system_tables.sql", "_performance_tables.sql", "_system_tables_data.sql"} {
			sql, err := os.ReadFile(filepath.Join(share, name+part))
			faults = append(faults, err)
			text.Write(sql)
		}
		if errors.Join(faults...) == nil {
			return text.String(), nil
		}
	}
	return "", fmt.Errorf("no system tables beside %s: %s", server, installMariaDB)
}
