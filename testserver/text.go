package testserver

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/testserver/internal/sqltext"
)

// textKind is what a server without the engine's grammar takes a text for.
type textKind uint8

const (
	textUnknown textKind = iota // not understood: the engine has to say
	textEmpty
	textCommand
	textQuery
)

var (
	queryVerbs   = []string{"SELECT", "WITH", "VALUES", "FROM", "TABLE", "(", "SHOW", "EXPLAIN", "DESCRIBE", "DESC", "PRAGMA"}
	commandVerbs = []string{
		"INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE", "TRUNCATE", "CREATE", "ALTER", "DROP", "COPY", "SET", "RESET", "USE",
		"BEGIN", "START", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "CALL", "ATTACH", "DETACH", "PREPARE", "EXECUTE",
		"DEALLOCATE", "INSTALL", "LOAD", "ANALYZE", "VACUUM", "GRANT", "REVOKE", "COMMENT",
	}
)

// kindOfText judges a text by the first words of its statements: a query among
// them makes it a query.
func kindOfText(parts []string) textKind {
	kind := textEmpty
	for _, part := range parts {
		toks := sqltext.Split(part)
		if len(toks) == 0 {
			continue
		}
		verb := strings.ToUpper(toks[0])
		switch {
		case slices.Contains(queryVerbs, verb):
			kind = max(kind, textQuery)
		case slices.Contains(commandVerbs, verb):
			kind = max(kind, textCommand)
		default:
			return textUnknown
		}
	}
	return kind
}

var rowLocks = regexp.MustCompile(`(?i)\s+FOR\s+(NO\s+KEY\s+UPDATE|UPDATE|KEY\s+SHARE|SHARE)(\s+(NOWAIT|SKIP\s+LOCKED))?\s*;?\s*$`)

// queryText is the text of a query as the engine is given it.
func (p *Profile) queryText(sql string) string {
	if p.StripLocks {
		sql = rowLocks.ReplaceAllString(sql, "")
	}
	return sql
}

// checkText refuses what never reaches the engine.
func (p *Profile) checkText(sql string) error {
	if p.NulCode != codes.OK && strings.ContainsRune(sql, 0) {
		return status.Error(p.NulCode, "unsupported parameter type: SQL contains null bytes")
	}
	return nil
}

// refusedByParser reports whether the engine did not understand the text.
func refusedByParser(err error) bool {
	return err != nil && strings.Contains(strings.ToLower(err.Error()), "parser error")
}

// nullParams is one row of NULLs, or nothing where the text has no parameters.
func nullParams(sql string) []arrow.RecordBatch {
	n := sqltext.CountParams(sql)
	if n == 0 {
		return nil
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, textParams(n))
	defer b.Release()
	for i := range n {
		b.Field(i).AppendNull()
	}
	return []arrow.RecordBatch{b.NewRecordBatch()}
}

// textParams describes n parameters of unknown type.
func textParams(n int) *arrow.Schema {
	fields := make([]arrow.Field, n)
	for i := range fields {
		fields[i] = arrow.Field{Name: "$" + strconv.Itoa(i+1), Type: arrow.BinaryTypes.String, Nullable: true}
	}
	return arrow.NewSchema(fields, nil)
}

// paramsNamed are the parameters of a text as it is told of them: see AppendTo.
func (p *Profile) paramsNamed(sql string, params *arrow.Schema) *arrow.Schema {
	into, ok := insertionOf(sql)
	if !ok || p.AppendTo == "" || !typesKnown(params) || len(into.columns) != params.NumFields() {
		return params
	}
	fields := slices.Clone(params.Fields())
	for i, name := range into.columns {
		fields[i].Name = name
	}
	return arrow.NewSchema(fields, nil)
}
