package sqldriver

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// Behind an argument's there is code of the pool's owner, and of ADBC's drivers, in each call:
// database/sql keeps its connection, and the locks of a transaction, where that does not return.
func TestAPanicOfTheOwnersIsAnErrorAndLosesNoConnection(t *testing.T) {
	for how, end := range map[string]func(){"panic": func() { panic("the owner's") }, "Goexit": runtime.Goexit} {
		for name, use := range map[string]func(ctx context.Context, db *sql.DB, arm func()) error{
			"Ping": func(ctx context.Context, db *sql.DB, arm func()) error { arm(); return db.PingContext(ctx) },
			"Query": func(ctx context.Context, db *sql.DB, arm func()) error {
				arm()
				_, err := db.QueryContext(ctx, "SELECT 1")
				return err
			}, //nolint:rowserrcheck,sqlclosecheck // there are none
			"Exec": func(ctx context.Context, db *sql.DB, arm func()) error {
				arm()
				_, err := db.ExecContext(ctx, "INSERT INTO t VALUES (1)")
				return err
			},
			"Prepare": func(ctx context.Context, db *sql.DB, arm func()) error {
				arm()
				_, err := db.PrepareContext(ctx, "SELECT 1") //nolint:sqlclosecheck // there is none
				return err
			},
			"Stmt": func(ctx context.Context, db *sql.DB, arm func()) error {
				cn, err := db.Conn(ctx)
				require.NoError(t, err)
				defer cn.Close() //nolint:errcheck // it has nothing to say
				st, err := cn.PrepareContext(ctx, "SELECT 1")
				require.NoError(t, err)
				defer st.Close() //nolint:errcheck // it has nothing to say
				arm()
				_, err = st.QueryContext(ctx) //nolint:rowserrcheck,sqlclosecheck // there are none
				return err
			},
			"BeginTx": func(ctx context.Context, db *sql.DB, arm func()) error {
				arm()
				_, err := db.BeginTx(ctx, nil)
				return err
			}, //nolint:sqlclosecheck // there is none
			"Tx.Query": func(ctx context.Context, db *sql.DB, arm func()) error {
				tx, err := db.BeginTx(ctx, nil)
				require.NoError(t, err)
				arm()
				_, err = tx.QueryContext(ctx, "SELECT 1") //nolint:rowserrcheck,sqlclosecheck // there are none
				_ = tx.Rollback()
				return err
			},
			"Commit": func(ctx context.Context, db *sql.DB, arm func()) error {
				tx, err := db.BeginTx(ctx, nil)
				require.NoError(t, err)
				arm()
				return tx.Commit()
			},
			"Close": func(ctx context.Context, db *sql.DB, arm func()) error {
				cn, err := db.Conn(ctx)
				require.NoError(t, err)
				_, err = cn.ExecContext(ctx, "SET colour = 'red'")
				require.NoError(t, err)
				arm()
				return cmp.Or(cn.Close(), errors.New("the owner's")) // nobody is told
			},
			"Rollback": func(ctx context.Context, db *sql.DB, arm func()) error {
				tx, err := db.BeginTx(ctx, nil)
				require.NoError(t, err)
				arm()
				return tx.Rollback()
			},
		} {
			if how == "Goexit" && strings.Contains("Stmt Tx.Query", name) {
				continue // what database/sql keeps locked holds up what its caller has deferred
			}
			t.Run(how+" in "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, err := testserver.Start(testserver.Options{Profile: testserver.Strict(), Listen: testserver.InMemory})
					require.NoError(t, err)
					defer func() { require.NoError(t, s.Close()) }()
					var armed atomic.Bool
					strike := func() {
						if armed.CompareAndSwap(true, false) {
							end()
						}
					}
					p, err := flightpool.New(t.Context(), "grpc://127.0.0.1:1", flightpool.Config{
						MaxSize: 1, Dialer: s.Dial, DialOptions: []grpc.DialOption{
							grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
								strike()
								return next(ctx, desc, cc, method, opts...)
							}),
							grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
								strike()
								return next(ctx, method, req, reply, cc, opts...)
							}),
						},
					})
					require.NoError(t, err)
					db := OpenDB(p)
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					_, err = db.ExecContext(ctx, "CREATE TABLE t (a BIGINT)")
					require.NoError(t, err)
					done := make(chan error, 1)
					go func() {
						defer close(done)
						defer func() { _ = recover() }() // as net/http does
						done <- use(ctx, db, func() { armed.Store(true) })
					}()
					err, returned := <-done
					require.False(t, armed.Load())
					synctest.Wait()
					require.Zero(t, p.Stats().InUse)
					require.NoError(t, db.PingContext(ctx))
					require.NoError(t, db.Close())
					if how == "Goexit" {
						require.Equal(t, name == "Close", returned)
						require.NoError(t, p.Close(context.Background()))
						return
					}
					require.Zero(t, db.Stats().InUse)
					require.True(t, returned)
					require.ErrorContains(t, err, "the owner's")
					require.False(t, flightpool.SafeToRetry(err), "%v", err)
					require.Equal(t, name == "Commit", errors.Is(err, flightpool.ErrCommitUnknown), "%v", err)
					require.NoError(t, p.Close(context.Background()))
				})
			})
		}
	}
}
