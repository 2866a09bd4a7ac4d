package backendtest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

// Suite is a backend and a kind of server to exercise.
type Suite struct {
	Has Features
	SQL SQL

	// Bubble runs each case in a testing/synctest bubble, where time bounds
	// are checked exactly. Start must then use no real network.
	Bubble bool

	// Start makes a fresh server for one case and ends it with t.
	Start func(t *testing.T) Server
}

// Features are what the server can do.
type Features struct {
	Transactions   bool
	Savepoints     bool
	Prepared       bool // statements with parameters
	UpdateCounts   bool // Update tells the rows affected
	Ingest         bool
	SessionOptions bool
	ServerCancel   bool // at least one cancel step confirms
	RPCCancel      bool // the end of an RPC stops its statement
	TrustedTxIDs   bool // ends of unknown transactions are refused
	TempTables     bool
	Cut            bool // Server.Cut is there
	TxEndsWithConn bool // a transaction whose connection is gone is rolled back

	// IngestNotInTx says that an ingestion inside a transaction is refused,
	// as it would be outside of it.
	IngestNotInTx bool

	// Canned says that the server is a stub: any query gives the same few
	// rows, nothing is stored, and there is no call for effects. Of SQL, Rows and
	// Insert are used then.
	Canned bool
}

// SQL is the server's dialect. A function may be nil if its Features are off.
type SQL struct {
	Rows        func(n int) string // one int64 column with 0..n-1, in order
	Empty       string             // a result with columns and without rows
	Invalid     string             // fails
	Slow        string             // runs until it is stopped; empty: cases that need it are left out
	Create      func(table string) string
	CreateTemp  func(table string) string
	Insert      func(table string, value int) string
	Count       func(table string) string // one int64: the rows of the table
	Param       string                    // returns its one int64 parameter
	InsertParam func(table string) string // inserts its one int64 parameter
}

// Server is a running server as the cases see it. Nil functions leave out the
// checks that need them.
type Server struct {
	// Open makes a connection. Required.
	Open func(ctx context.Context) (backend.Conn, error)

	// Cut ends all transports at once, without a word. Required for
	// Features.Cut.
	Cut func()

	// Executions is how often the server has run this very text.
	Executions func(sql string) int

	// Started returns when n statements run on the server, Idle when none
	// does, Gone when no session is left. They fail with their context.
	Started func(ctx context.Context, n int) error
	Idle    func(ctx context.Context) error
	Gone    func(ctx context.Context) error
}

// Exercise runs every case that the features allow, each against a server of
// its own, and logs those that it left out.
func Exercise(t *testing.T, s Suite) {
	for _, c := range cases() {
		if !c.applies(s) {
			t.Logf("left out, as the server is: %s", c.name)
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if s.Bubble {
				synctest.Test(t, func(t *testing.T) { c.run(newCheck(t, s)) })
			} else {
				c.run(newCheck(t, s))
			}
		})
	}
}

// testCase is one rule of the seam.
type testCase struct {
	name    string
	applies func(Suite) bool
	run     func(*check)
}

func always(Suite) bool     { return true }
func computes(s Suite) bool { return !s.Has.Canned }

func cases() []testCase {
	var all []testCase
	for _, group := range [][]testCase{queryCases, updateCases, cannedCases, preparedCases, txCases, ingestCases, optionCases, cancelCases, lifeCases} {
		all = append(all, group...)
	}
	return all
}

// check is one case under way.
type check struct {
	*testing.T
	Suite
	server Server
}

// enough is the time after which something that should happen has not. It is
// long since only failures wait for it.
const enough = 30 * time.Second

func newCheck(t *testing.T, s Suite) *check { return &check{T: t, Suite: s, server: s.Start(t)} }

// ctx bounds a case, so that a hang becomes a failure.
func (c *check) ctx() context.Context {
	ctx, cancel := context.WithTimeout(c.Context(), 2*enough)
	c.Cleanup(cancel)
	return ctx
}

// open makes a connection that is closed at the end of the case.
func (c *check) open() backend.Conn {
	c.Helper()
	conn, err := c.server.Open(c.ctx())
	require.NoError(c, err)
	c.Cleanup(func() { _ = conn.Close() })
	return conn
}

// patience is how late a call may return after its context's end.
func (c *check) patience() time.Duration {
	if c.Bubble {
		return 50 * time.Millisecond
	}
	return 2 * time.Second // a busy machine is no defect
}

// fault returns the *backend.Error in err, which must be one.
func (c *check) fault(err error) *backend.Error {
	c.Helper()
	var e *backend.Error
	require.ErrorAs(c, err, &e)
	return e
}

// usable checks that conn is as good as before.
func (c *check) usable(conn backend.Conn) {
	c.Helper()
	require.NoError(c, conn.Lost())
	require.NoError(c, conn.Ping(c.ctx()))
	c.reads(conn)
}

// unsupported checks how the lack of a call is told.
func (c *check) unsupported(conn backend.Conn, err error) {
	c.Helper()
	require.Equal(c, backend.FaultUnsupported, c.fault(err).Fault, "%v", err)
	c.usable(conn)
}
