package testserver

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/internal/sqlscan"
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
		case verb == "SHOW" && len(toks) > 1 && strings.EqualFold(toks[1], "DATABASES"): // the parser does not count it among those with rows
			kind = max(kind, textCommand)
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

// nameParams gives the parameters of an INSERT that names its columns the names that these have in the table, whatever the
// case in which it writes them, and those that a text has numbers for the columns that they are for, in the order of the text: see AppendTo.
func (h *handlers) nameParams(ctx context.Context, c *call, p *prepared) {
	into, isInsert := insertionOf(p.sql)
	home := h.srv.profile.AppendTo
	if home == "" || !typesKnown(p.desc.Params) {
		return
	}
	columns, fields := comparedColumns(p.sql), fieldsInText(p.sql, p.desc.Params)
	if isInsert {
		columns = into.columns
	}
	if len(columns) != len(fields) {
		return
	}
	if isInsert {
		catalog, table := home, into.table[0]
		if len(into.table) > 1 {
			catalog, table = into.table[0], into.table[1]
		}
		if d, err := h.describe(ctx, c, fmt.Sprintf("SELECT * FROM %q.%q", catalog, table), p.tx); err == nil {
			columns = namesIn(d.Rows, columns)
		}
	}
	for i, name := range columns {
		fields[i].Name = name
	}
	p.desc.Params = arrow.NewSchema(fields, nil)
}

var comparison = regexp.MustCompile(`(\w+)\s*=\s*\$\d`)

// comparedColumns are the columns that parameters with numbers are set to, or compared with.
func comparedColumns(sql string) (columns []string) {
	for _, found := range comparison.FindAllStringSubmatch(sql, -1) {
		columns = append(columns, found[1])
	}
	return columns
}

// fieldsInText are the parameters in the order in which the text has their numbers, if it has those of all.
func fieldsInText(sql string, params *arrow.Schema) []arrow.Field {
	fields, numbers := slices.Clone(params.Fields()), sqlscan.NumberedParams(sql)
	if len(numbers) != len(fields) {
		return fields
	}
	for i, number := range numbers {
		fields[i] = params.Field(min(max(number.Number, 1), len(fields)) - 1)
	}
	return fields
}

// namesIn are the names of a table's columns as the table has them.
func namesIn(table *arrow.Schema, columns []string) []string {
	names := slices.Clone(columns)
	for i, name := range columns {
		for _, f := range table.Fields() {
			if strings.EqualFold(f.Name, name) {
				names[i] = f.Name
			}
		}
	}
	return names
}
