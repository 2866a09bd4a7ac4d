package dsql_test

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/flightpool/flightpool/reservoir/dsql"
)

// ownConn is a *sql.Conn with what a random program has open on it.
type ownConn struct {
	*prover
	polite bool // no call is made beside rows, which costs the connection

	conn *sql.Conn
	rows []*sql.Rows
	tx   *sql.Tx
	long context.Context // of transactions that the step's context does not end
	of   []int           // changes of tx that went well, and those that may be in it
}

func init() {
	steps["a *sql.Conn of one's own"] = func(p *prover, ctx context.Context, r *rand.Rand) { useOwnConn(ctx, p, r, true) }
	rude["a *sql.Conn with calls beside rows"] = func(p *prover, ctx context.Context, r *rand.Rand) { useOwnConn(ctx, p, r, false) }
}

func useOwnConn(ctx context.Context, p *prover, r *rand.Rand, polite bool) {
	conn, err := p.db.Conn(ctx)
	if err != nil {
		return
	}
	long, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second) // the server may never answer BEGIN
	defer cancel()
	c := &ownConn{prover: p, polite: polite, conn: conn, long: long}
	for range r.IntN(12) {
		c.step(ctx, r)
	}
	c.closeRows()
	if c.tx != nil {
		c.end(false)
	}
	_ = conn.Close()
}

func (c *ownConn) closeRows() {
	for _, rows := range c.rows {
		_ = rows.Close()
	}
	c.rows = nil
}

// step is one call. pgx takes none beside open rows.
func (c *ownConn) step(ctx context.Context, r *rand.Rand) {
	if r.IntN(5) == 0 {
		short, cancel := context.WithTimeout(ctx, time.Duration(r.IntN(3000))*time.Microsecond)
		defer cancel()
		ctx = short
	}
	n := r.IntN(12)
	if c.polite && n != 4 {
		c.closeRows()
	}
	switch {
	case n < 3 && c.tx == nil:
		id := c.change()
		_, err := c.conn.ExecContext(ctx, proveInsert, id)
		c.tell(id, err)
	case n == 3:
		if rows, err := c.conn.QueryContext(ctx, "select generate_series(1, 1000)"); err == nil { //nolint:sqlclosecheck // by the program
			if rows.Next() {
				c.rows = append(c.rows, rows)
			} else {
				_ = rows.Close()
			}
		}
	case n == 4 && len(c.rows) > 0:
		n := 1
		for c.rows[0].Next() {
			n++
		}
		if c.rows[0].Err() == nil {
			assert.Equal(c.t, 1000, n, "a short result without an error")
		}
		_ = c.rows[0].Close()
		c.rows = c.rows[1:]
	case n == 5 && c.tx == nil:
		within := c.long
		if r.IntN(3) == 0 {
			within = ctx // which may end, so that database/sql rolls it back
		}
		c.tx, _ = c.conn.BeginTx(within, nil)
	case n < 9 && c.tx != nil:
		c.inTx(ctx, r)
	case n == 9 && c.tx != nil:
		c.end(true)
	case n == 10 && c.tx != nil:
		c.end(false)
	case n == 11:
		_ = c.conn.PingContext(ctx)
	}
}

// inTx makes a change in the transaction, or one that is taken back.
func (c *ownConn) inTx(ctx context.Context, r *rand.Rand) {
	id := c.change()
	c.tell(id, errRolledBack)
	if r.IntN(3) > 0 {
		if _, err := c.tx.ExecContext(ctx, proveInsert, id); err == nil {
			c.of = append(c.of, id)
		}
		return
	}
	for _, text := range []string{"savepoint s", "insert into proved values ($1)", "rollback to s", "release s"} {
		var args []any
		if text == proveInsert {
			args = []any{id}
		}
		if _, err := c.tx.ExecContext(ctx, text, args...); err != nil {
			return // which aborts the transaction, or leaves it as it was
		}
	}
}

// end ends the transaction, and tells of its changes.
func (c *ownConn) end(commit bool) {
	tx, of := c.tx, c.of
	c.tx, c.of = nil, nil
	if !commit {
		_ = tx.Rollback() // whether it worked or not, nothing is committed
		return
	}
	err := tx.Commit()
	if err != nil && !errors.Is(err, dsql.ErrCommitUnknown) {
		err = errors.Join(errRolledBack, err)
	}
	for _, id := range of {
		c.tell(id, err)
	}
}
