package pglease

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

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
