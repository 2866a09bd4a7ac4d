package sqlconn

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/flightpool/flightpool/internal/printing"
)

// A Kind is what the databases do differently.
type Kind struct {
	// Name is how the kind is called in messages.
	Name string
	// HealthSQL is a harmless query. Default "SELECT 1".
	HealthSQL string
	// RollbackSQL ends a transaction that may be open and does no harm where
	// none is. Default "ROLLBACK", and, where the server refuses that, "BEGIN" and
	// "ROLLBACK", for some do when none is open. A server whose BEGIN commits an
	// open one needs "ROLLBACK" here.
	RollbackSQL string
	// ResetSQL then takes back what else a session may have left, one round
	// trip per element.
	ResetSQL []string
	// LeavesNoState says whether a statement is known to leave nothing in the session.
	// When no other one ran, ResetSQL is spared. Nil: none is known to.
	LeavesNoState func(sql string) bool
	// Resettable says whether a statement is known to leave nothing in the
	// session that ResetSQL does not take back. A connection on which another
	// one ran is not used again. Nil: all are.
	Resettable func(sql string) bool
	// IdentifySQL asks a session for its number and its server, in two columns,
	// when it is opened. StopSQL, with %s for that number, ends the session from
	// another one. Some drivers only close the connection when a statement's
	// context ends, and the server works on: then the session is ended over a
	// second connection, which exists for that moment beside all others. Empty:
	// the driver itself stops statements.
	IdentifySQL, StopSQL string
	// IsSessionGone says of an error of StopSQL that there is no such session any more:
	// what was to be stopped has ended. Nil: no error says so.
	IsSessionGone func(err error) bool
	// UptimeSQL asks for how many whole seconds the server has run, in the last column
	// of its row. A server that was restarted counts its sessions from the beginning:
	// nothing is ended on one that has run for less long than the session, by more than
	// a second. So a restart within two seconds after the session was opened is not
	// seen, nor is one after which the server's clock was put forward by as much as the
	// session was old; the session that has the number then is ended instead. Set it
	// where a server may give a number again.
	UptimeSQL string
	// IsConnLost says of an error of the driver's, for drivers that have one of their own
	// for it, that the connection has gone. Nil: those that Broken knows.
	IsConnLost func(err error) bool
}

// The kinds that have more to them than a name.
var (
	// PostgreSQL is reset as DISCARD ALL does it, in one round trip, but keeps
	// what drivers have prepared for themselves. After a statement that drops that,
	// too, the connection is closed: the driver does not know of it. RESET ROLE is for servers
	// before the minor versions of November 2024, where SET SESSION AUTHORIZATION ends the role
	// that a session was begun with.
	PostgreSQL = Kind{Name: "postgresql", RollbackSQL: rollbackSQL, Resettable: keepsPrepared, ResetSQL: []string{
		"SET SESSION AUTHORIZATION DEFAULT; RESET ROLE; RESET ALL; CLOSE ALL; UNLISTEN *; " +
			"SELECT pg_advisory_unlock_all(); DISCARD SEQUENCES; DISCARD TEMP; " +
			"DO $$ DECLARE s text; BEGIN FOR s IN SELECT name FROM pg_prepared_statements WHERE from_sql " +
			"LOOP EXECUTE 'DEALLOCATE ' || quote_ident(s); END LOOP; END $$",
	}}

	// MySQL is also MariaDB. What an INSERT leaves for LAST_INSERT_ID(), ROW_COUNT(),
	// FOUND_ROWS() and SHOW WARNINGS is taken back; reads are spared that round trip, though
	// they leave how many rows they found, and may leave warnings.
	MySQL = Kind{
		Name: "mysql", RollbackSQL: rollbackSQL, Resettable: mysqlResettable, IsConnLost: isMySQLConnLost,
		ResetSQL: []string{"SELECT LAST_INSERT_ID(0) FROM (SELECT 1) AS d"}, LeavesNoState: mysqlLeavesNoState,
		IdentifySQL: "SELECT CONNECTION_ID(), CONCAT_WS(':', @@hostname, @@port, @@server_id)", StopSQL: "KILL %s",
		UptimeSQL: "SHOW GLOBAL STATUS LIKE 'Uptime'", IsSessionGone: isMySQLSessionGone,
	}

	// SQLServer is reset by its driver, together with the next statement.
	SQLServer = Kind{Name: "mssql", RollbackSQL: "IF @@TRANCOUNT > 0 ROLLBACK"}

	// DSQL is Aurora DSQL, which has no temporary objects and no session locks.
	// After settings were changed, which few do, it is asked to reset them; where
	// it refuses, the connection is closed.
	DSQL = Kind{Name: "dsql", RollbackSQL: rollbackSQL, ResetSQL: []string{"RESET ALL"}, LeavesNoState: dsqlLeavesNoState, Resettable: dsqlResettable}

	// Firebird needs version 4 for the reset.
	Firebird = Kind{Name: "firebird", RollbackSQL: rollbackSQL, HealthSQL: "SELECT 1 FROM RDB$DATABASE", ResetSQL: []string{"ALTER SESSION RESET"}}
)

// rollbackSQL is what nearly all servers know.
const rollbackSQL = "ROLLBACK"

// keepsPrepared says whether a statement surely leaves what the driver has prepared
// for itself: there is no DISCARD ALL in it, and no DEALLOCATE but of a name that
// is not the driver's. It looks at the words wherever they are, without a copy of
// the text.
func keepsPrepared(sql string) bool {
	for i := 0; i < len(sql); i++ {
		switch {
		case sql[i]|' ' != 'd':
		case hasPrefixFold(sql[i:], "DISCARD"):
			if next := leadingWord(sql[i+len("DISCARD"):]); next == "" || strings.EqualFold(next, "ALL") {
				return false
			}
		case hasPrefixFold(sql[i:], "DEALLOCATE"):
			next := leadingWord(sql[i+len("DEALLOCATE"):])
			if next == "" || strings.EqualFold(next, "ALL") || strings.EqualFold(next, "PREPARE") || hasPrefixFold(next, "stmtcache") {
				return false
			}
		}
	}
	return true
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// leadingWord is what s begins with after blanks, up to what is no letter or digit; empty
// where a comment or a quoted name comes.
func leadingWord(s string) string {
	s = strings.TrimLeft(s, " \t\r\n\f\v")
	if end := strings.IndexFunc(s, func(r rune) bool {
		return r != '_' && r < 0x80 && (r < '0' || r > '9') && (r|' ' < 'a' || r|' ' > 'z')
	}); end >= 0 {
		return s[:end]
	}
	return s
}

// mysqlResettable knows reads and changes of data. Whatever may touch a variable, a lock
// by name, or what the session last took from a sequence is not among them, be it only in
// a comment.
func mysqlResettable(sql string) bool {
	verb, upper, single := firstWord(sql)
	if !single || strings.Contains(upper, "@") || strings.Contains(upper, "GET_LOCK") || takesFromSequence(upper) {
		return false
	}
	return slices.Contains(mysqlReadVerbs, verb) || slices.Contains(mysqlWriteVerbs, verb)
}

// mysqlLeavesNoState knows reads that set nothing that functions of the session tell.
func mysqlLeavesNoState(sql string) bool {
	verb, upper, single := firstWord(sql)
	return single && slices.Contains(mysqlReadVerbs, verb) && !strings.Contains(upper, "LAST_INSERT_ID") && !strings.Contains(upper, "FOUND_ROWS")
}

var (
	mysqlReadVerbs = []string{
		"SELECT", "VALUES", "EXPLAIN", "SHOW", "BEGIN", "START", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE",
	}
	mysqlWriteVerbs = []string{"INSERT", "UPDATE", "DELETE", "REPLACE", "WITH"}
)

// takesFromSequence looks for NEXTVAL and NEXT VALUE FOR.
func takesFromSequence(upper string) bool {
	return strings.Contains(upper, "NEXTVAL") ||
		strings.Contains(upper, "NEXT") && strings.Contains(strings.Join(strings.Fields(upper), " "), "NEXT VALUE FOR")
}

// isMySQLConnLost knows mysql.ErrInvalidConn by its text, for the package need not be there.
// It is also what an open fails with that is closed before the server has said
// anything, as by a proxy without a server.
func isMySQLConnLost(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if err.Error() == "invalid connection" {
			return true
		}
	}
	return false
}

// isMySQLSessionGone knows ER_NO_SUCH_THREAD by the text of the driver's error.
func isMySQLSessionGone(err error) bool { return strings.Contains(err.Error(), "Error 1094 ") }

// dsqlLeavesNoState knows reads, changes of data and of the schema.
func dsqlLeavesNoState(sql string) bool {
	verb, upper, single := firstWord(sql)
	return single && !mayChangeSettings(upper) && slices.Contains(dsqlStatelessVerbs, verb)
}

// mayChangeSettings finds the ways to change a setting beside SET: PostgreSQL's function, and its view, an UPDATE of which
// does the same.
func mayChangeSettings(upper string) bool {
	return strings.Contains(upper, "SET_CONFIG") || strings.Contains(upper, "PG_SETTINGS")
}

var dsqlStatelessVerbs = []string{
	"SELECT", "INSERT", "UPDATE", "DELETE", "WITH", "VALUES", "TABLE", "SHOW", "BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT",
	"CREATE", "ALTER", "DROP", "GRANT", "REVOKE", "COMMENT", "ANALYZE",
}

// dsqlResettable also knows the settings that RESET ALL takes back: the role and
// the authorization of a session are not among them.
func dsqlResettable(sql string) bool {
	if dsqlLeavesNoState(sql) {
		return true
	}
	verb, upper, single := firstWord(sql)
	return single && (verb == "SET" || verb == "RESET" || mayChangeSettings(upper)) &&
		!strings.Contains(upper, "ROLE") && !strings.Contains(upper, "AUTHORIZATION")
}

// firstWord takes a statement apart, as far as that goes without a parser: its
// first word, empty where a comment comes first; all of it in upper case; and
// whether it is a single statement, for a second one may be anything.
func firstWord(sql string) (verb, upper string, single bool) {
	upper = strings.ToUpper(strings.TrimLeft(sql, " \t\r\n("))
	verb, _, _ = strings.Cut(strings.Map(func(r rune) rune {
		if r < 'A' || r > 'Z' {
			return ' '
		}
		return r
	}, upper), " ")
	return verb, upper, !strings.Contains(strings.TrimRight(upper, "; \t\r\n"), ";")
}

// Connectors hold credentials, so that only what they are set for is printed.

// String shows the settings, and of the connector that it is set.
func (c Config) String() string { return printing.Struct("sqlconn.Config", c) }

// Format prints String under every verb.
func (c Config) Format(f fmt.State, _ rune) { printing.Format(f, c.String()) }

// LogValue is String, for slog.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// MarshalJSON gives String. It cannot be read back.
func (c Config) MarshalJSON() ([]byte, error) { return printing.JSON(c.String()) }

// Format prints the name of the kind under every verb.
func (t *Lifecycle) Format(f fmt.State, _ rune) {
	printing.Format(f, fmt.Sprintf("sqlconn.Lifecycle{%s}", t.cfg.Kind.Name))
}
