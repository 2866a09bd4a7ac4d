package sqlconn

import "strings"

// A Kind is what the databases do differently.
type Kind struct {
	// Name is how the kind is called in messages.
	Name string
	// HealthSQL is a harmless query. Default "SELECT 1".
	HealthSQL string
	// RollbackSQL ends a transaction that may be open and does no harm where
	// none is. Default "ROLLBACK".
	RollbackSQL string
	// ResetSQL then takes back what else a session may have left, one round
	// trip per element.
	ResetSQL []string
	// Traceless says whether a statement is known to leave nothing in the
	// session that ResetSQL does not take back. A connection on which another
	// one ran is not used again. Nil: all are.
	Traceless func(sql string) bool
	// IdentifySQL asks a session for its number and its server, in two columns,
	// when it is opened. StopSQL, with %s for that number, ends the session from
	// another one. Some drivers only close the connection when a statement's
	// context ends, and the server works on: then the session is ended over a
	// second connection, which exists for that moment beside all others. Empty:
	// the driver itself stops statements.
	IdentifySQL, StopSQL string
}

// The kinds that have more to them than a name.
var (
	// PostgreSQL is reset as DISCARD ALL does it, in one round trip, but keeps
	// what drivers have prepared for themselves.
	PostgreSQL = Kind{Name: "postgresql", ResetSQL: []string{
		"SET SESSION AUTHORIZATION DEFAULT; RESET ALL; CLOSE ALL; UNLISTEN *; " +
			"SELECT pg_advisory_unlock_all(); DISCARD SEQUENCES; DISCARD TEMP; " +
			"DO $$ DECLARE s text; BEGIN FOR s IN SELECT name FROM pg_prepared_statements WHERE from_sql " +
			"LOOP EXECUTE 'DEALLOCATE ' || quote_ident(s); END LOOP; END $$",
	}}

	// MySQL is also MariaDB.
	MySQL = Kind{
		Name: "mysql", Traceless: mysqlTraceless,
		IdentifySQL: "SELECT CONNECTION_ID(), CONCAT_WS(':', @@hostname, @@port, @@server_id)", StopSQL: "KILL %s",
	}

	// SQLServer is reset by its driver, together with the next statement.
	SQLServer = Kind{Name: "mssql", RollbackSQL: "IF @@TRANCOUNT > 0 ROLLBACK"}

	// Firebird needs version 4 for the reset.
	Firebird = Kind{Name: "firebird", HealthSQL: "SELECT 1 FROM RDB$DATABASE", ResetSQL: []string{"ALTER SESSION RESET"}}
)

// withDefaults fills in what the kind leaves open.
func (k Kind) withDefaults() Kind {
	if k.HealthSQL == "" {
		k.HealthSQL = "SELECT 1"
	}
	if k.RollbackSQL == "" {
		k.RollbackSQL = "ROLLBACK"
	}
	return k
}

// mysqlTraceless knows reads and changes of data. Whatever may touch a variable
// or a lock by name is not among them, be it only in a comment.
func mysqlTraceless(sql string) bool {
	sql = strings.ToUpper(strings.TrimLeft(sql, " \t\r\n("))
	if strings.Contains(sql, "@") || strings.Contains(sql, "GET_LOCK") {
		return false
	}
	verb, _, _ := strings.Cut(strings.Map(func(r rune) rune {
		if r < 'A' || r > 'Z' {
			return ' '
		}
		return r
	}, sql), " ")
	switch verb {
	case "SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "VALUES", "EXPLAIN", "SHOW",
		"BEGIN", "START", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE":
		return !strings.Contains(strings.TrimRight(sql, "; \t\r\n"), ";") // a second statement may be anything
	default:
		return false
	}
}
