package pglease

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// run sends statements in one message, which the server executes in one
// transaction of its own, and returns what the last of them did. The message
// arrives as a whole or not at all. An error leaves open whether they were
// executed.
func run(ctx context.Context, c *pgconn.PgConn, statements string) (*pgconn.Result, error) {
	if encoding := c.ParameterStatus("client_encoding"); encoding != "UTF8" {
		return nil, &ConfigError{
			Setting: "the pool's client_encoding", Hint: "must be UTF8",
			Err: fmt.Errorf("it is %q", encoding),
		}
	}
	if c.TxStatus() != 'I' {
		return nil, &ConfigError{
			Setting: "the pool", Hint: "its connections must not be within a transaction when they are acquired",
			Err: errors.New("what is written in somebody else's transaction may come to nothing"),
		}
	}
	results, err := c.Exec(ctx, preamble(ctx)+statements).ReadAll()
	switch {
	case err != nil:
		return nil, err
	case len(results) == 0:
		return nil, errors.New("pglease: the server answered nothing")
	}
	last := results[len(results)-1]
	return last, last.Err
}

// preamble begins each message. The isolation is set whatever the default of
// the server, the database or the role is: at a higher one, what comes second
// would be an error. A commit is on disk before it is answered, and with the
// synchronous standbys unless the role chose otherwise than by off. No statement
// goes on for longer than ctx, and the server gives up a little before the
// caller does, which saves the connection.
func preamble(ctx context.Context) string {
	timeout := "0"
	if deadline, ok := ctx.Deadline(); ok {
		timeout = strconv.FormatInt(max((time.Until(deadline)*9/10).Milliseconds(), 1), 10)
	}
	return "set transaction isolation level read committed; " +
		"select set_config('statement_timeout', '" + timeout + "', true), set_config('synchronous_commit', " +
		"case current_setting('synchronous_commit') when 'off' then 'on' else current_setting('synchronous_commit') end, true); "
}
