package testserver

import (
	"context"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

// maxSchemas bounds what a session remembers of the schemas of its queries.
const maxSchemas = 128

// knownSchema is what the session has learned by running sql before: the
// cache of servers that run a query for its schema. It is stale when another
// session has changed the table.
func (s *session) knownSchema(ctx context.Context, sql string) (schema *arrow.Schema, ok bool) {
	_ = s.inTurn(ctx, func() error {
		schema, ok = s.schemas[sql]
		return nil
	})
	return schema, ok
}

func (s *session) learnSchema(ctx context.Context, sql string, schema *arrow.Schema) {
	_ = s.inTurn(ctx, func() error {
		if len(s.schemas) >= maxSchemas {
			clear(s.schemas)
		}
		s.schemas[sql] = schema
		return nil
	})
}

// forgetSchemas empties the cache after a statement of this session that can
// change a table. The caller has the turn.
func (s *session) forgetSchemas(sql string) {
	first, _, _ := strings.Cut(strings.ToUpper(strings.TrimSpace(sql)), " ")
	if slices.Contains([]string{"CREATE", "ALTER", "DROP", "TRUNCATE", "RENAME", "USE", "ATTACH", "DETACH"}, first) {
		clear(s.schemas)
	}
}
