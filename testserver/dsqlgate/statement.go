package dsqlgate

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// A transaction is what the limits of one need to know.
type transaction struct {
	status byte // of the last ReadyForQuery
	began  time.Time
	rows   int
	ddl    bool
	dml    bool
}

// onReady follows a ReadyForQuery.
func (t *transaction) onReady(status byte, now time.Time) {
	if t.status == 'I' && status != 'I' {
		t.began = now
	}
	if status == 'I' {
		*t = transaction{}
	}
	t.status = status
}

// countRows counts the rows that a statement changed.
func (t *transaction) countRows(tag string) {
	words := strings.Fields(tag)
	if len(words) < 2 {
		return
	}
	switch words[0] {
	case "INSERT", "UPDATE", "DELETE", "COPY":
		n, _ := strconv.Atoi(words[len(words)-1]) // not a number: not a count
		t.rows += n
	}
}

// refusalOf says why DSQL does not run a statement here, or nil.
func (t *transaction) refusalOf(sql string, o Options, now time.Time) *pgproto3.ErrorResponse {
	words := strings.Fields(strings.ToUpper(strings.TrimRight(sql, "; \t\n")))
	if len(words) == 0 {
		return nil
	}
	if what := unsupported(words); what != "" {
		return statementError("0A000", what+" not supported")
	}
	if t.status != 'T' || words[0] == "ROLLBACK" {
		return nil
	}
	switch {
	case o.TxLimit > 0 && now.Sub(t.began) > o.TxLimit:
		return statementError("54000", fmt.Sprintf("transaction age limit of %v exceeded", o.TxLimit))
	case o.TxRows > 0 && t.rows > o.TxRows:
		return statementError("54000", fmt.Sprintf("transaction row limit of %d exceeded", o.TxRows))
	}
	switch words[0] {
	case "CREATE", "ALTER", "DROP", "GRANT", "REVOKE":
		if t.ddl {
			return statementError("0A000", "multiple ddl statements are not supported in a transaction")
		}
		t.ddl = true
	case "INSERT", "UPDATE", "DELETE", "COPY", "MERGE":
		t.dml = true
	}
	if t.ddl && t.dml {
		return statementError("0A000", "ddl and dml are not supported in the same transaction")
	}
	return nil
}

// unsupported names what DSQL does not have, or "".
func unsupported(words []string) string {
	switch words[0] {
	case "SAVEPOINT", "TRUNCATE", "LISTEN", "NOTIFY", "VACUUM", "LOCK":
		return words[0]
	case "CREATE":
		for _, what := range words[1:min(4, len(words))] {
			switch what {
			case "TEMP", "TEMPORARY", "SEQUENCE", "TRIGGER", "DATABASE", "EXTENSION":
				return "CREATE " + what
			}
		}
	}
	return ""
}

func isCommit(sql string) bool {
	switch strings.ToUpper(strings.TrimRight(strings.TrimSpace(sql), ";")) {
	case "COMMIT", "END":
		return true
	}
	return false
}

func statementError(code, message string) *pgproto3.ErrorResponse {
	return &pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: code, Message: message}
}
