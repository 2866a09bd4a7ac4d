package testserver

import (
	"context"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

// maxSchemas bounds what a session remembers of the schemas of its queries.
const maxSchemas = 128

// cachedSchema is what the session has learned by running sql before: the
// cache of servers that run a query for its schema. It is stale when another
// session has changed the table.
func (s *session) cachedSchema(ctx context.Context, sql string) (schema *arrow.Schema, ok bool) {
	_ = s.withEngineLock(ctx, func() error {
		schema, ok = s.schemaCache[sql]
		return nil
	})
	return schema, ok
}

func (s *session) cacheSchema(ctx context.Context, sql string, schema *arrow.Schema) {
	_ = s.withEngineLock(ctx, func() error {
		if len(s.schemaCache) >= maxSchemas {
			clear(s.schemaCache)
		}
		s.schemaCache[sql] = schema
		return nil
	})
}

// clearSchemaCache empties the cache after a statement of this session that can
// change a table. The caller holds engineLock.
func (s *session) clearSchemaCache(sql string) {
	first, _, _ := strings.Cut(strings.ToUpper(strings.TrimSpace(sql)), " ")
	if slices.Contains([]string{"CREATE", "ALTER", "DROP", "TRUNCATE", "RENAME", "USE", "ATTACH", "DETACH"}, first) {
		clear(s.schemaCache)
	}
}
