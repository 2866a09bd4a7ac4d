package pglease

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5/pgconn"
)

// ErrStandby says that the server is a standby. In a failover it passes, though
// it comes in a *ConfigError.
var ErrStandby = errors.New("pglease: the server is a standby (pg_is_in_recovery)")

// explain turns an answer that no retry will change into a *ConfigError. What
// is not there, or not allowed, leads to fs.ErrNotExist or fs.ErrPermission.
func (s *Store) explain(err error) error {
	if errors.Is(err, ErrStandby) {
		return &ConfigError{
			Setting: "the pool's server",
			Hint:    "leases need the primary: name it, or add target_session_attrs=primary",
			Err:     err,
		}
	}
	var answer *pgconn.PgError
	if known := (*ConfigError)(nil); errors.As(err, &known) || !errors.As(err, &answer) {
		return err
	}
	switch answer.Code {
	case "42P01", "3F000", "3D000":
		err = fmt.Errorf("%w (%w)", err, fs.ErrNotExist)
	case "42501", "28P01", "28000":
		err = fmt.Errorf("%w (%w)", err, fs.ErrPermission)
	}
	wrong := func(setting, format string, args ...any) error {
		return &ConfigError{Setting: setting, Hint: fmt.Sprintf(format, args...), Err: err}
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
