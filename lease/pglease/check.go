package pglease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// requiredColumns are what a table needs: name, type and whether it must be NOT NULL.
const requiredColumns = "expires timestamp with time zone, key text, record json"

// selectTableFacts tells what a table is. Each column is text; an empty one is a null.
func (t table) selectTableFacts() string {
	return `select pg_is_in_recovery(), current_setting('transaction_read_only'), c.oid is not null,
	coalesce(has_schema_privilege(n.oid, 'USAGE'), false), c.relkind, c.relpersistence, row_security_active(c.oid), c.relhasrules,
	(select string_agg(p, ', ') from unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p where not has_table_privilege(c.oid, p)),
	(select string_agg(a.attname || ' ' || format_type(a.atttypid, null), ', ' order by a.attname collate "C") from pg_attribute a
		where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attname in ('expires', 'key', 'record')),
	exists (select from pg_index i join pg_attribute a on a.attrelid = c.oid and a.attnum = i.indkey[0] and a.attname = 'key'
		where i.indrelid = c.oid and i.indisunique and i.indisvalid and i.indimmediate and i.indpred is null and i.indnkeyatts = 1)
	from (select 1) one left join pg_namespace n on n.nspname = ` + quote(t.schema) + `
	left join pg_class c on c.relnamespace = n.oid and c.relname = ` + quote(t.name)
}

// check looks at the table and at what this role may do, and refuses what
// would fail, or forget or hide records. It notes what is right, so that it is
// not asked for again; what changes later is told by the server's errors.
func (s *Store) check(ctx context.Context, c *pgconn.PgConn, write bool) error {
	result, err := run(ctx, c, s.table.selectTableFacts())
	if err != nil {
		return err
	}
	if len(result.Rows) != 1 {
		return fmt.Errorf("pglease: %d tables are called %s", len(result.Rows), s.table)
	}
	var f []string
	for _, value := range result.Rows[0] {
		f = append(f, string(value))
	}
	standby, readOnly, exists, usage, kind, persistence := f[0] == "t", f[1] == "on", f[2] == "t", f[3] == "t", f[4], f[5]
	hidden, rules, missing, has, unique := f[6] == "t", f[7] == "t", f[8], f[9], f[10] == "t"
	wrong := func(hint, what string) error {
		return &ConfigError{Setting: s.setting + ".Table", Hint: hint, Err: errors.New(what)}
	}
	denied := func(hint, what string) error {
		return &ConfigError{Setting: s.setting + ".Table", Hint: hint, Err: fmt.Errorf("%w %s", fs.ErrPermission, what)}
	}
	name := s.table.String()
	switch {
	case standby:
		return ErrStandby
	case !exists:
		return &ConfigError{
			Setting: s.setting + ".Table", Hint: "make it with Setup, or correct the name or the pool's database",
			Err: fmt.Errorf("table %s: %w", name, fs.ErrNotExist),
		}
	case !usage:
		return denied("grant the role USAGE on the schema", "for the schema of table "+name)
	case kind != "r":
		return wrong("make it with Setup", name+" is not an ordinary table")
	case persistence != "p":
		return wrong("alter table … set logged: what is forgotten in a crash is granted twice", "table "+name+" is not logged")
	case has != requiredColumns || !unique:
		return wrong("make it with Setup", "table "+name+" has not the columns "+requiredColumns+" with a primary key on key alone")
	case hidden || rules:
		return wrong("use a table of its own", "table "+name+" has row-level security or rules")
	case strings.Contains(missing, "SELECT") || write && missing != "":
		return denied("grant the role "+privileges, "for table "+name+": "+missing)
	case write && readOnly:
		return &ConfigError{
			Setting: "the pool's server or role", Hint: "unset default_transaction_read_only",
			Err: errors.New("transactions are read-only"),
		}
	}
	s.readable.Store(true)
	if write {
		s.writable.Store(true)
	}
	return nil
}
