package pglease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flightpool/flightpool/lease/fleet"
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
	wrong := func(hint, what string, args ...any) error {
		return &fleet.ConfigError{Setting: s.setting + ".Table", Hint: hint, Err: fmt.Errorf(what, args...)}
	}
	name := s.table.String()
	switch {
	case standby:
		return ErrStandby
	case !exists:
		return wrong("make it with Setup, or correct the name or the pool's database", "table %s: %w", name, fs.ErrNotExist)
	case !usage:
		return wrong("grant the role USAGE on the schema", "%w for the schema of table %s", fs.ErrPermission, name)
	case kind != "r":
		return wrong("make it with Setup", "%s is not an ordinary table", name)
	case persistence != "p":
		return wrong("alter table … set logged: what is forgotten in a crash is granted twice", "table %s is not logged", name)
	case has != requiredColumns || !unique:
		return wrong("make it with Setup", "table %s has not the columns %s with a primary key on key alone", name, requiredColumns)
	case hidden || rules:
		return wrong("use a table of its own", "table %s has row-level security or rules", name)
	case strings.Contains(missing, "SELECT") || write && missing != "":
		return wrong("grant the role "+privileges, "%w for table %s: %s", fs.ErrPermission, name, missing)
	case write && readOnly:
		return &fleet.ConfigError{
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

// DDL is what Setup executes, for those who make tables otherwise. An empty
// name is DefaultTable.
func DDL(tableName string) (string, error) {
	t, err := parseTable(tableName)
	if err != nil {
		return "", fmt.Errorf("pglease: %w", err)
	}
	return t.ddl(), nil
}

// Pages are left half empty, so that a row is replaced within its page and
// without a change of the index (HOT), and vacuum never locks the table to
// make it shorter. Records of large fleets are compressed before they leave
// their page.
func (t table) ddl() string {
	return `create table if not exists ` + t.String() + ` (
	key text collate "C" primary key,
	record json not null,
	expires timestamptz
) with (fillfactor = 50, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
alter table ` + t.String() + ` alter column record set storage main;`
}

// Setup makes the table. One that exists already is left as it is, and looked
// at: what New would refuse is an error here too. The pool's role needs CREATE
// on the schema; the roles of the fleet need SELECT, INSERT, UPDATE and DELETE
// on the table, which is theirs to be granted.
func Setup(ctx context.Context, pool Pool, tableName string) error {
	s, err := NewStore(pool, tableName)
	if err != nil {
		return err
	}
	return s.withConn(ctx, func(c *pgconn.PgConn) error {
		result, err := run(ctx, c, s.table.selectTableFacts())
		if err != nil {
			return err
		}
		if len(result.Rows) == 1 && string(result.Rows[0][2]) != "t" {
			if err := s.create(ctx, c); err != nil {
				return err
			}
		}
		return s.check(ctx, c, true)
	})
}

// create may find that others make the table at the same time.
func (s *Store) create(ctx context.Context, c *pgconn.PgConn) error {
	_, err := run(ctx, c, s.table.ddl())
	var answer *pgconn.PgError
	if errors.As(err, &answer) && (answer.Code == "23505" || answer.Code == "42P07" || answer.Code == "42710") {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pglease: create table %s: %w", s.table, err)
	}
	return nil
}

// ErrStandby says that the server is a standby. In a failover it passes, though
// it comes in a *fleet.ConfigError.
var ErrStandby = errors.New("pglease: the server is a standby (pg_is_in_recovery)")

// explain turns an answer that no retry will change into a *fleet.ConfigError. What
// is not there, or not allowed, leads to fs.ErrNotExist or fs.ErrPermission.
func (s *Store) explain(err error) error {
	if errors.Is(err, ErrStandby) {
		return &fleet.ConfigError{
			Setting: "the pool's server",
			Hint:    "leases need the primary: name it, or add target_session_attrs=primary",
			Err:     err,
		}
	}
	var answer *pgconn.PgError
	if known := (*fleet.ConfigError)(nil); errors.As(err, &known) || !errors.As(err, &answer) {
		return err
	}
	switch answer.Code {
	case "42P01", "3F000", "3D000":
		err = fmt.Errorf("%w (%w)", err, fs.ErrNotExist)
	case "42501", "28P01", "28000":
		err = fmt.Errorf("%w (%w)", err, fs.ErrPermission)
	}
	wrong := func(setting, format string, args ...any) error {
		return &fleet.ConfigError{Setting: setting, Hint: fmt.Sprintf(format, args...), Err: err}
	}
	switch answer.Code {
	case "42P01", "3F000": // undefined_table, invalid_schema_name
		return wrong(s.setting+".Table", "table %s does not exist in this database: make it with Setup, or correct the name", s.table)
	case "42501": // insufficient_privilege
		return wrong(s.setting+".Table", "the role needs %s on table %s, and USAGE on its schema", privileges, s.table)
	case "42703", "42804", "42883", "42P10", "23502", "42809": // a column, its type, its key, another column that must be given, no table
		return wrong(s.setting+".Table", "table %s is not as Setup makes it", s.table)
	case "25006": // read_only_sql_transaction
		return wrong("the pool's server or role", "transactions are read-only: a standby, or default_transaction_read_only")
	case "28P01", "28000", "3D000": // invalid_password, invalid_authorization_specification, invalid_catalog_name
		return wrong("the pool's user, password or database", "refused")
	case "22021", "22P05": // character_not_in_repertoire, untranslatable_character
		return wrong("Config.Budget", "has letters that the database's encoding has not")
	}
	return err
}

const privileges = "SELECT, INSERT, UPDATE and DELETE"
