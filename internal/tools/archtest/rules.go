package archtest

import "strings"

// Module is the path of the root module.
const Module = "github.com/flightpool/flightpool"

// The bounds of functions and of files that are not tests, in lines.
const (
	maxFuncLines = 70
	maxFileLines = 300
)

// callers are the folders in which results are read and errors of calls made.
var callers = []string{"backend", "session", "flightpool", "internal/flightconn", "internal/adbcconn"}

// layer says what the packages of a folder of the root module may import,
// tests apart: arrows point down only. The deepest layer that contains a
// package counts.
type layer struct {
	dir string
	may []string // packages of the root module; those of the layer itself always

	// external lists prefixes of other modules. The standard library is
	// always allowed; a layer without entries has nothing else.
	external []string
}

var (
	wire = []string{"github.com/apache/arrow-go/", "google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto/"}
	aws  = []string{"github.com/aws/aws-sdk-go-v2", "github.com/aws/smithy-go"}
	test = []string{"github.com/stretchr/testify/", "go.uber.org/goleak"}
)

var layers = []layer{
	{dir: "cancel", may: []string{"internal/callback"}},
	{dir: "lease", may: []string{"internal/callback", "internal/ctxerr", "lease/internal/fifo"}},
	{dir: "lease/internal"},
	{dir: "lease/fleet", may: []string{"lease", "lease/internal/fifo", "internal/callback", "internal/ctxerr", "internal/errjoin", "internal/invariant", "internal/taskgroup"}},
	{dir: "lease/dynamolease", may: []string{"lease", "lease/fleet"}, external: aws},
	{dir: "lease/pglease", may: []string{"lease", "lease/fleet"}, external: []string{"github.com/jackc/"}},
	{dir: "lease/fleet/fleettest", may: []string{"lease/fleet"}, external: test},
	{dir: "lease/leasetest", may: []string{"lease"}, external: test},

	{dir: "reservoir", may: []string{"internal/ctxerr", "internal/errjoin", "internal/option", "internal/backoff", "internal/callback", "internal/invariant"}},
	{dir: "reservoir/reservoirtest", may: []string{"reservoir"}, external: test},
	{dir: "reservoir/sqlconn", may: []string{"internal/badconn", "internal/ctxerr", "reservoir", "internal/callback", "internal/printing"}},
	{dir: "reservoir/dsql", may: []string{"internal/badconn", "internal/ctxerr", "internal/errjoin", "reservoir", "internal/backoff", "internal/callback", "internal/option", "internal/taskgroup", "internal/usedup", "internal/printing", "lease", "lease/dynamolease", "internal/invariant"}, external: join(aws, []string{"github.com/jackc/"})},
	{dir: "reservoir/dsql/dsqlotel", may: []string{"reservoir/dsql", "reservoir"}, external: []string{"go.opentelemetry.io/"}},

	{dir: "backend", may: []string{"cancel", "internal/eof", "internal/printing"}, external: wire},
	{dir: "backend/backendtest", may: []string{"backend", "cancel", "internal/eof"}, external: join(wire, test)},
	{dir: "rowscan", may: []string{"internal/errjoin", "internal/structfields"}, external: []string{"github.com/apache/arrow-go/"}},
	{dir: "session", may: []string{"backend", "internal/bind", "cancel", "rowscan", "internal/effect", "internal/backoff", "internal/callback", "internal/printing", "internal/ctxerr", "internal/ctxvalues", "internal/eof", "internal/invariant", "internal/sqlscan", "internal/errjoin"}, external: wire},

	{dir: "internal/structfields", may: []string{"internal/errjoin"}},
	{dir: "internal/ipcwrite", external: []string{"github.com/apache/arrow-go/"}},
	{dir: "internal/bind", may: []string{"internal/errjoin", "internal/structfields", "rowscan"}, external: []string{"github.com/apache/arrow-go/"}},
	{dir: "internal/effect", external: []string{"google.golang.org/grpc"}},
	{dir: "internal/backoff"},
	{dir: "internal/taskgroup"},
	{dir: "internal/usedup"},
	{dir: "internal/eof"},
	{dir: "internal/histogram"},
	{dir: "internal/fairshare", may: []string{"internal/invariant"}},
	{dir: "internal/invariant"},
	{dir: "internal/ctxerr"},
	{dir: "internal/badconn"},
	{dir: "internal/ctxvalues"},
	{dir: "internal/tracers", may: []string{"internal/callback", "internal/ctxvalues"}},
	{dir: "internal/netname"},
	{dir: "internal/errjoin"},
	{dir: "internal/callback"},
	{dir: "internal/printing"},
	{dir: "internal/option"},
	{dir: "internal/option/optiontest", may: []string{"internal/option"}, external: test},
	{dir: "internal/sqlscan", may: []string{"internal/invariant"}},
	{dir: "internal/memnet"},
	{dir: "internal/tools/valuegen", external: []string{"github.com/apache/arrow-go/"}},
	{dir: "internal/tools/archtest"},
	{dir: "internal/tools"},
	{dir: "internal/grpcconn", may: []string{"internal/eof", "internal/invariant"}, external: []string{"google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto/", "golang.org/x/net/http2/hpack", "golang.org/x/net/http/httpguts"}},
	{dir: "internal/flightconn", may: []string{"internal/grpcconn", "internal/ipcwrite", "internal/printing", "internal/netname", "internal/ctxerr", "backend", "cancel", "internal/backoff", "internal/callback", "internal/effect", "internal/eof", "internal/invariant", "internal/taskgroup", "internal/sqlscan", "internal/errjoin"}, external: join(wire, []string{"golang.org/x/sync"})},
	{dir: "internal/driverapi", may: []string{"backend", "session"}},
	{dir: "internal/adbcconn", may: []string{"internal/ctxerr", "backend", "cancel", "internal/callback", "internal/effect", "internal/eof", "internal/flightconn", "internal/ipcwrite", "internal/invariant", "internal/sqlscan", "internal/errjoin"}, external: join(wire, []string{"github.com/apache/arrow-adbc/"})},

	{dir: "flightpool", may: []string{"rowscan", "internal/backoff", "internal/bind", "internal/printing", "internal/netname", "backend", "session", "reservoir", "cancel", "lease", "internal/callback", "internal/ctxerr", "internal/ctxvalues", "internal/flightconn", "internal/histogram", "internal/invariant", "internal/option", "internal/taskgroup", "internal/tracers", "internal/usedup", "internal/sqlscan", "internal/errjoin"}, external: wire},
	{dir: "flightpool/adbcpool", may: []string{"backend", "flightpool", "flightpool/sqldriver", "session", "rowscan", "internal/adbcconn", "internal/callback", "internal/ctxerr", "internal/driverapi", "internal/sqlscan", "internal/errjoin"}, external: join(wire, []string{"github.com/apache/arrow-adbc/"})},
	{dir: "flightpool/sqldriver", may: []string{"internal/badconn", "internal/callback", "internal/ctxerr", "backend", "flightpool", "reservoir", "rowscan", "session", "internal/bind", "internal/driverapi", "internal/errjoin"}, external: []string{"github.com/apache/arrow-go/"}},
	{dir: "flightpool/oauth", may: []string{"internal/option", "internal/netname", "flightpool", "internal/printing", "reservoir", "internal/errjoin"}, external: []string{"golang.org/x/oauth2"}},
	{dir: "flightpool/registry/ddl", may: []string{"internal/printing"}},
	{dir: "flightpool/registry", may: []string{"internal/ctxerr", "backend", "cancel", "flightpool", "flightpool/registry/ddl", "internal/bind", "internal/callback", "internal/fairshare", "internal/histogram", "internal/printing", "session", "lease", "reservoir", "reservoir/sqlconn", "internal/invariant", "internal/option", "internal/taskgroup", "internal/tracers", "internal/errjoin"}, external: wire},
	{dir: "flightpool/registry/kinds", may: []string{"flightpool", "flightpool/adbcpool", "flightpool/registry", "lease", "reservoir/dsql", "reservoir/sqlconn", "internal/errjoin"}, external: []string{"github.com/jackc/"}},
	{dir: "flightpool/poolz", may: []string{"backend", "flightpool", "flightpool/registry", "internal/callback", "lease", "reservoir"}},
	{dir: "flightpool/export", may: []string{"rowscan"}, external: []string{"github.com/apache/arrow-go/"}},
	{dir: "flightpool/flightotel", may: []string{"backend", "flightpool", "session"}, external: []string{"go.opentelemetry.io/"}},
	{dir: "flightpool/flightprom", may: []string{"backend", "flightpool", "flightpool/registry", "session"}, external: []string{"github.com/prometheus/"}},

	// What follows is for tests and demonstrations; nothing above imports it.
	{dir: "testserver", may: []string{"internal/backoff", "internal/memnet", "internal/sqlscan", "testserver/engine", "testserver/internal/sqltext", "testserver/script"}, external: wire},
	{dir: "testserver/engine", external: wire},
	{dir: "testserver/script", may: []string{"internal/backoff", "testserver/engine", "testserver/internal/sqltext"}, external: wire},
	{dir: "testserver/internal/sqltext"},
	{dir: "testserver/dsqlgate", may: []string{"internal/backoff", "internal/memnet", "testserver/localdeps"}, external: []string{"github.com/jackc/"}},
	{dir: "testserver/localdeps", external: join(aws, []string{"github.com/jackc/"})},
}

// detachable folders may use context.Background anywhere: they have callers
// without a context. Packages called main and those for tests are so too.
var detachable = []string{"testserver", "examples", "internal/tools/bench"}

func join(lists ...[]string) []string {
	var all []string
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// ForTests reports whether a folder holds what is for tests and demonstrations
// only: the map of packages leaves it out.
func ForTests(dir string) bool {
	return within(dir, "testserver") || within(dir, "internal/tools") || strings.HasSuffix(dir, "test") || dir == "internal/memnet"
}

// entryPoints are what the users of each public package begin with. Each has an Example whose
// output is compared; "" is one of the package.
var entryPoints = map[string][]string{
	"cancel": {"Chain_Run"},
	"flightpool": {"", "New", "ParseTarget", "CollectRows", "CollectOneRow", "Rows", "SafeToRetry",
		"FlightSQLPool_Query", "FlightSQLPool_QueryRow", "FlightSQLPool_Update", "FlightSQLPool_Ingest", "FlightSQLPool_BeginTx", "FlightSQLPool_InTx",
		"FlightSQLPool_AcquireSession", "FlightSQLPool_WithSession", "FlightSQLPool_SendBatch", "FlightSQLPool_Stats"},
	"flightpool/adbcpool":   {"Open", "Database"},
	"flightpool/export":     {"Write", "NewWriter"},
	"flightpool/flightotel": {""},
	"flightpool/flightprom": {""},
	"flightpool/oauth":      {"ClientCredentials"},
	"flightpool/poolz":      {"New"},
	"flightpool/registry":   {""},
	"flightpool/sqldriver":  {"", "OpenDB"},
	"lease":                 {"NewLeases", "NewLimiter", "Admit"},
	"reservoir":             {"New"},
	"reservoir/dsql":        {"ConfigFromEnv", "RetryOCC"},
	"rowscan":               {"Collect", "CollectOne", "Rows", "Maps", "ScanOne", "ParseDecimal"},
	"session":               {"SessionHandle_BeginTransaction", "SessionHandle_Savepoint", "SessionHandle_PrepareQuery"},
	"testserver":            {"Start", "Faults_Set"},
	"testserver/script":     {"Engine_On"},
}

// withoutExample are the public packages that have no entry point of their own to show, and
// what shows them.
var withoutExample = map[string]string{
	"backend":                        "the seam of backends: backend/backendtest runs one",
	"flightpool/registry/ddl":        "registry.ApplyDDL reads its text",
	"flightpool/registry/kinds":      "needs servers: its tests",
	"flightpool/flightprom/dsqlprom": "as flightprom, of a cluster",
	"lease/dynamolease":              "needs a table: docs/fleets.md, compiled, and examples/fleet",
	"lease/fleet":                    "by dynamolease and pglease",
	"lease/pglease":                  "needs a table: docs/fleets.md, compiled, and examples/fleet",
	"reservoir/dsql/dsqlotel":        "its package comment",
	"reservoir/sqlconn":              "the registry's kinds are made of it",
	"testserver/dsqlgate":            "docs/testing.md, run",
	"testserver/duckdb":              "docs/tasks.md, run",
	"testserver/engine":              "the seam of databases: testserver/script is one",
	"testserver/localdeps":           "docs/testing.md, run",
}
