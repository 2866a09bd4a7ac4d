package sqldriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
)

// ends is an argument whose Value, or text, does not return.
type (
	endingValue func()
	endingText  struct{ end func() }
)

func (f endingValue) Value() (driver.Value, error) { f(); return nil, nil } //nolint:nilnil // it does not come to that

func (e endingText) MarshalText() ([]byte, error) { e.end(); return nil, nil }

// database/sql asks arguments with the connection in its hands, and lets go of neither that nor of
// the locks of a transaction where one panics: a connection of the pool was out for ever, and the
// transaction's Commit hung.
func TestAnArgumentThatDoesNotReturnLosesNoConnection(t *testing.T) {
	for how, end := range map[string]func(){"panic": func() { panic("argument") }, "Goexit": runtime.Goexit} {
		for what, arg := range map[string]any{"Value": endingValue(end), "MarshalText": endingText{end}} {
			t.Run(how+" in "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					_, db := openedOn(t, testserver.Strict())
					db.SetMaxOpenConns(1)
					tx := func(run func(*sql.Tx) error) error {
						tx, err := db.BeginTx(t.Context(), nil)
						require.NoError(t, err)
						err = run(tx)
						require.NoError(t, tx.Commit())
						return err
					}
					const text = "SELECT ?"
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					for name, call := range map[string]func() error{
						"Query":    func() error { _, err := db.QueryContext(ctx, text, arg); return err }, //nolint:rowserrcheck,sqlclosecheck // there are none
						"QueryRow": func() error { var v any; return db.QueryRowContext(ctx, text, arg).Scan(&v) },
						"Exec":     func() error { _, err := db.ExecContext(ctx, text, arg); return err },
						"Stmt": func() error {
							st, err := db.PrepareContext(ctx, text)
							require.NoError(t, err)
							defer st.Close() //nolint:errcheck // it has nothing
							_, err = st.ExecContext(ctx, arg)
							return err
						},
						"Tx.Query": func() error {
							return tx(func(tx *sql.Tx) error { _, err := tx.QueryContext(ctx, text, arg); return err }) //nolint:rowserrcheck,sqlclosecheck // there are none
						},
						"Tx.Exec": func() error {
							return tx(func(tx *sql.Tx) error { _, err := tx.ExecContext(ctx, text, 1, arg); return err })
						},
					} {
						require.ErrorContains(t, call(), "argument", name)
						require.Zero(t, db.Stats().InUse, name)
						require.Zero(t, Pool(db).Stats().InUse, name)
					}
				})
			})
		}
	}
}

// refusingValue counts the calls of its Value, which fails.
type refusingValue struct{ calls *int }

var errRefusing = errors.New("no value")

func (v refusingValue) Value() (driver.Value, error) {
	*v.calls++
	return nil, errRefusing
}

func TestAValueIsCalledOnceThoughItFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, db := openedOn(t, testserver.Strict())
		calls := 0
		_, err := db.ExecContext(t.Context(), "SELECT ?", refusingValue{&calls})
		require.ErrorIs(t, err, errRefusing)
		require.ErrorContains(t, err, "argument 1")
		require.Equal(t, 1, calls)
		_, err = db.ExecContext(t.Context(), "SELECT ?", struct{}{}) // which database/sql refuses
		require.ErrorContains(t, err, "unsupported type struct {}")
	})
}
