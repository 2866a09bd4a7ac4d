package sqldriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
)

// inUse is a *sql.Conn with what a random program has opened on it.
type inUse struct {
	rand *rand.Rand
	conn *sql.Conn
	rows []*sql.Rows
	stmt []*sql.Stmt
	tx   []*sql.Tx
	ends []context.CancelFunc
}

func (p *inUse) context(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	p.ends = append(p.ends, cancel)
	return ctx
}

func (p *inUse) keep(rows *sql.Rows, err error) {
	if err == nil {
		p.rows = append(p.rows, rows) //nolint:sqlclosecheck // by the program, or at its end
	}
}

// anyOf is one of what there is, or else the zero value.
func anyOf[T any](r *rand.Rand, of []T) (v T, ok bool) {
	if len(of) == 0 {
		return v, false
	}
	return of[r.IntN(len(of))], true
}

// step makes one call, whose error is of no interest here: it has to return.
func (p *inUse) step(t *testing.T, s *testserver.Server) {
	ctx := p.context(t)
	tx, hasTx := anyOf(p.rand, p.tx)
	rows, hasRows := anyOf(p.rand, p.rows)
	stmt, hasStmt := anyOf(p.rand, p.stmt)
	switch n := p.rand.IntN(14); {
	case n == 0:
		p.keep(p.conn.QueryContext(ctx, "SELECT 1")) //nolint:sqlclosecheck // see keep
	case n == 1:
		_, _ = p.conn.ExecContext(ctx, "SELECT 2")
	case n == 2:
		_ = p.conn.PingContext(ctx)
	case n == 3:
		// At the end of its context database/sql closes the *sql.Conn in the background, and
		// waits for rows there by a lock, past which time does not go on in a bubble.
		if tx, err := p.conn.BeginTx(t.Context(), nil); err == nil {
			p.tx = append(p.tx, tx)
		}
	case n == 4:
		if stmt, err := p.conn.PrepareContext(ctx, "SELECT 3"); err == nil {
			p.stmt = append(p.stmt, stmt) //nolint:sqlclosecheck // by the program, or at its end
		}
	case n == 5 && hasStmt:
		p.keep(stmt.QueryContext(ctx)) //nolint:sqlclosecheck // see keep
	case n == 6 && hasStmt:
		_ = stmt.Close()
	case n == 7 && hasTx:
		p.keep(tx.QueryContext(ctx, "SELECT 4")) //nolint:sqlclosecheck // see keep
	case n == 8 && hasTx:
		_ = tx.Commit()
	case n == 9 && hasTx:
		_ = tx.Rollback()
	case n == 10 && hasRows:
		_ = rows.Next()
	case n == 11 && hasRows:
		_ = rows.Close()
	case n == 12 && p.rand.IntN(3) == 0:
		s.Faults().KillConns()
		synctest.Wait()
	case n == 13 && p.rand.IntN(4) == 0:
		cancel, _ := anyOf(p.rand, p.ends)
		cancel()
		synctest.Wait()
	}
}

// end closes everything but the *sql.Conn.
func (p *inUse) end() {
	for _, rows := range p.rows {
		_ = rows.Close()
	}
	for _, stmt := range p.stmt {
		_ = stmt.Close()
	}
	for _, tx := range p.tx {
		_ = tx.Rollback()
	}
}

// Whatever a caller has open on a *sql.Conn when its session is lost, no call waits for it.
// Once nothing is open, the loss is driver.ErrBadConn again.
func TestNoCallWaitsForWhatARandomCallerHasOpen(t *testing.T) {
	for range 60 {
		seed := rand.Uint64()
		synctest.Test(t, func(t *testing.T) {
			s, db := openedOn(t, testserver.Strict())
			conn, err := db.Conn(t.Context())
			require.NoError(t, err)
			p := &inUse{rand: rand.New(rand.NewPCG(seed, 0)), conn: conn}
			for range 5 + p.rand.IntN(40) {
				p.step(t, s)
			}
			p.end()
			s.Faults().KillConns()
			synctest.Wait()
			_, err = p.conn.ExecContext(t.Context(), "SELECT 5")
			require.True(t, errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone), "seed %d: %v", seed, err)
			_ = p.conn.Close()
			for _, cancel := range p.ends {
				cancel()
			}
		})
	}
}
