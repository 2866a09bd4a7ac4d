//go:build duckdb_arrow

package conformance

import (
	"testing"

	"go.uber.org/goleak"
)

// ADBC's own driver leaves a transaction of its suite open on the server of
// Arrow's example, which is in this process. gorm's cache of prepared statements
// cannot be ended.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("database/sql.(*Tx).awaitDone"),
		goleak.IgnoreTopFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1"))
}
