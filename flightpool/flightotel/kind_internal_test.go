package flightotel

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
)

func TestWhatIsKeptIsBounded(t *testing.T) {
	tracer := NewTracer()
	for i := range 3 * maxKept {
		require.Equal(t, "SELECT", tracer.summaryOf("SELECT "+strconv.Itoa(i)))
		tracer.kindOf(kindKey{what: strconv.Itoa(i)})
	}
	require.Len(t, tracer.summaries.kept, maxKept)
	require.Len(t, tracer.kinds.kept, maxKept)
	long := "SELECT '" + strings.Repeat("x", maxText) + "'"
	require.Equal(t, "SELECT", tracer.summaryOf(long))
	require.NotContains(t, tracer.summaries.kept, long)
}

func TestTheAddressOfAServer(t *testing.T) {
	for target, want := range map[string]string{
		"warehouse:31337": "db.client.connection.pool.name=warehouse:31337,db.system.name=other_sql,server.address=warehouse,server.port=31337",
		"[::1]:31337":     "db.client.connection.pool.name=[::1]:31337,db.system.name=other_sql,server.address=::1,server.port=31337",
		"/run/db.sock":    "db.client.connection.pool.name=/run/db.sock,db.system.name=other_sql,server.address=/run/db.sock",
		"":                "db.system.name=other_sql",
	} {
		got := attribute.NewSet(common(target, nil)...)
		require.Equal(t, want, got.Encoded(attribute.DefaultEncoder()))
	}
}
