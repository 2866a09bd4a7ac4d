package pglease

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flightpool/flightpool/lease/fleet"
)

// DefaultTable is the table's name where none is configured.
const DefaultTable = "public.flightpool_leases"

// table is a table's name, by its schema: a search path does not choose.
type table struct{ schema, name string }

// maxName is how many bytes of a name PostgreSQL does not cut off.
const maxName = 63

func parseTable(text string) (table, error) {
	if text == "" {
		text = DefaultTable
	}
	t := table{"public", text}
	if schema, name, ok := strings.Cut(text, "."); ok {
		t = table{schema, name}
	}
	for _, part := range []string{t.schema, t.name} {
		if part == "" || len(part) > maxName || strings.ContainsAny(part, ".\x00") || checkKey(part) != nil {
			return table{}, fmt.Errorf("%.200q is not schema.table or table, with names of at most %d bytes", text, maxName)
		}
	}
	return t, nil
}

// String is the name as SQL has it.
func (t table) String() string { return pgx.Identifier{t.schema, t.name}.Sanitize() }

// quote makes a literal that no setting of the server reads otherwise.
func quote(s string) string {
	return "E'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(s) + "'"
}

// selectRows has a row for each key, there or not, so that the clock is always
// told. A standby would answer with what was.
func (t table) selectRows(keys []string) (string, error) {
	values := make([]string, len(keys))
	for i, key := range keys {
		if err := checkKey(key); err != nil {
			return "", err
		}
		values[i] = "(" + quote(key) + ")"
	}
	return "select k.key, r.record::text, " + clockMillis + ", pg_is_in_recovery()" +
		" from (values " + strings.Join(values, ", ") + ") k(key) left join " + t.String() + " r on r.key = k.key", nil
}

func (t table) selectBudgets() string {
	return "select key, pg_is_in_recovery() from " + t.String() + " where starts_with(key, " + quote(fleet.BudgetPrefix) + ")"
}

const clockMillis = "(extract(epoch from clock_timestamp()) * 1000)::bigint"

// expiry is when a record may be removed: never, or as it was.
type expiry struct {
	set bool
	in  time.Duration
}

func (e expiry) sql() string {
	return "clock_timestamp() + interval '" + strconv.FormatInt(e.in.Milliseconds(), 10) + " milliseconds'"
}

func (t table) insertRow(key, record string, e expiry) string {
	expires := "null"
	if e.set {
		expires = e.sql()
	}
	return "insert into " + t.String() + " (key, record, expires) values (" + quote(key) + ", " + quote(record) + ", " + expires +
		") on conflict (key) do nothing"
}

// updateRow compares the record itself, not a version: a change by hand counts
// like any other.
func (t table) updateRow(key, old, fresh string, e expiry) string {
	expires := ""
	if e.set {
		expires = ", expires = " + e.sql()
	}
	return "update " + t.String() + " set record = " + quote(fresh) + expires +
		" where key = " + quote(key) + " and record::text = " + quote(old)
}

// touchRow changes nothing, and has a commit of its own.
func (t table) touchRow(key string) string {
	return "update " + t.String() + " set record = record where key = " + quote(key)
}

// deleteExpired waits for no lock, so that it can be part of no deadlock.
func (t table) deleteExpired() string {
	return "delete from " + t.String() + " where key in (select key from " + t.String() +
		" where expires < clock_timestamp() limit 1000 for update skip locked)"
}

// checkKey refuses what PostgreSQL's text cannot hold, before two names that
// differ only in that become one.
func checkKey(key string) error {
	if utf8.ValidString(key) && !strings.ContainsRune(key, 0) && len(key) <= maxKey {
		return nil
	}
	return &fleet.ConfigError{
		Setting: "Config.Budget", Hint: fmt.Sprintf("must be UTF-8 without zero bytes, and of less than %d bytes", maxKey),
		Err: fmt.Errorf("key %.100q", key),
	}
}

// maxKey is less than what an index of PostgreSQL can hold.
const maxKey = 2000

// run sends statements in one message, which the server executes in one
// transaction of its own, and returns what the last of them did. The message
// arrives as a whole or not at all. An error leaves open whether they were
// executed.
func run(ctx context.Context, c *pgconn.PgConn, statements string) (*pgconn.Result, error) {
	if encoding := c.ParameterStatus("client_encoding"); encoding != "UTF8" {
		return nil, &fleet.ConfigError{
			Setting: "the pool's client_encoding", Hint: "must be UTF8",
			Err: fmt.Errorf("it is %q", encoding),
		}
	}
	if c.TxStatus() != 'I' {
		return nil, &fleet.ConfigError{
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
