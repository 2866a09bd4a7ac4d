package kinds_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx of the built-in kind
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/flightpool/registry/kinds"
)

// curious is a PostgreSQL that asks everybody for the password in clear, and lets nobody in.
type curious struct {
	net.Listener
	serving sync.WaitGroup
	heard   chan string // user and password of each attempt
}

func startCurious(t *testing.T) *curious {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &curious{Listener: l, heard: make(chan string, 16)}
	s.serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.serving.Go(func() {
				defer conn.Close() //nolint:errcheck // it has said all
				s.serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		s.serving.Wait()
	})
	return s
}

func (s *curious) serve(conn net.Conn) {
	backend := pgproto3.NewBackend(conn, conn)
	startup, err := backend.ReceiveStartupMessage()
	if err != nil {
		return
	}
	user := startup.(*pgproto3.StartupMessage).Parameters["user"] //nolint:forcetypeassert // there is no TLS
	backend.Send(&pgproto3.AuthenticationCleartextPassword{})
	if backend.Flush() != nil || backend.SetAuthType(pgproto3.AuthTypeCleartextPassword) != nil {
		return
	}
	if answer, err := backend.Receive(); err == nil {
		if password, ok := answer.(*pgproto3.PasswordMessage); ok {
			s.heard <- user + ":" + password.Password
		}
	}
	backend.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "28P01", Message: "no"})
	_ = backend.Flush()
}

// The credentials of the program's own environment are nobody's mapping, and go to no server
// that a definition names.
func TestNoUserOpensWithTheCredentialsOfTheProgram(t *testing.T) {
	dir := t.TempDir()
	passfile := filepath.Join(dir, ".pgpass")
	require.NoError(t, os.WriteFile(passfile, []byte("*:*:*:*:of-the-file\n"), 0o600))
	for name, value := range map[string]string{"PGUSER": "gateway", "PGPASSWORD": "of-the-program", "PGPASSFILE": passfile, "HOME": dir} {
		t.Setenv(name, value)
	}
	s := startCurious(t)
	address := s.Addr().(*net.TCPAddr) //nolint:forcetypeassert // so it was asked for
	for kind, own := range map[string][]registry.Kind{"built in": nil, "of package kinds": {kinds.PostgreSQL()}} {
		for _, c := range []struct{ server, mapping, want string }{
			{"host '127.0.0.1', port '%d', sslmode 'disable'", "user 'ann', password 'hers'", "ann:hers"},
			{"host '127.0.0.1', port '%d', sslmode 'disable'", "user 'ann'", "ann:"},
			{"host '127.0.0.1', port '%d', sslmode 'disable'", "", ""},
			{"host '127.0.0.1', port '%d', sslmode 'disable'", "password 'hers'", ""},
			{"host '127.0.0.1', port '%d', sslmode 'disable', passfile '" + passfile + "'", "user 'ann'", "ann:of-the-file"},
			{"target 'postgres://127.0.0.1:%d/?sslmode=disable'", "user 'ann', password 'hers'", "ann:hers"},
			{"target 'postgres://127.0.0.1:%d/?sslmode=disable'", "user 'ann'", "ann:"},
			{"target 'postgres://127.0.0.1:%d/?sslmode=disable&passfile=" + passfile + "'", "user 'ann'", "ann:of-the-file"},
			// A target that leaves all to pgx, and has no users.
			{"target 'postgres://127.0.0.1:%d/?sslmode=disable'", "", "gateway:of-the-program"},
		} {
			t.Run(kind+" "+c.server+" "+c.mapping, func(t *testing.T) {
				r := newRegistry(t, own...)
				err := r.ApplyDDL(t.Context(), fmt.Sprintf(`
					CREATE SERVER pg FOREIGN DATA WRAPPER postgres_fdw OPTIONS (`+c.server+`, min_connections '0', warmup_connections '0');
					CREATE USER MAPPING FOR PUBLIC SERVER pg`, address.Port)+options(c.mapping))
				require.NoError(t, err)
				_, err = r.Acquire(t.Context(), "pg", "ann")
				if c.want == "" {
					require.ErrorContains(t, err, "user: the mapping names none")
					require.Empty(t, s.heard)
					return
				}
				require.Error(t, err)
				require.Equal(t, c.want, <-s.heard)
			})
		}
	}
}

// Nor with its client certificate, which proves to a server who the program is.
func TestNoUserOpensWithTheClientCertificateOfTheProgram(t *testing.T) {
	t.Setenv("PGSSLCERT", "/nowhere/gateway.crt")
	t.Setenv("PGSSLKEY", "/nowhere/gateway.key")
	params := registry.ConnectParams{User: "ann", Options: map[string]string{"host": "db", "sslmode": "require"}}
	source, err := registry.PostgreSQLTarget(params)
	require.NoError(t, err)
	_, err = pgx.ParseConfig(source)
	require.NoError(t, err, "it reads no certificate")
	params.Options["sslcert"], params.Options["sslkey"] = "/nowhere/hers.crt", "/nowhere/hers.key"
	source, err = registry.PostgreSQLTarget(params)
	require.NoError(t, err)
	_, err = pgx.ParseConfig(source)
	require.ErrorContains(t, err, "hers.crt")
	source, err = registry.PostgreSQLTarget(registry.ConnectParams{Options: map[string]string{"host": "db", "service": "hers"}})
	require.NoError(t, err)
	require.Equal(t, "postgres://db:5432?service=hers", source, "the service says all")
}

func options(of string) string {
	if of == "" {
		return ""
	}
	return " OPTIONS (" + of + ")"
}
