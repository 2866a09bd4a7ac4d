package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
)

// Where a session begins.
const (
	HomeCatalog = "memory"
	HomeSchema  = "main"
)

// Engine is the database behind a Server. The Server keeps sessions, tickets,
// handles, faults and the ledger; the Engine keeps the data and runs SQL.
//
// Open and SQLInfo may be called from several goroutines at once.
type Engine interface {
	// Open starts a database session. The Server opens one for each of its
	// own sessions and closes it with it. ctx bounds the opening only.
	Open(ctx context.Context) (Session, error)

	// SQLInfo answers GetSqlInfo. Values are of the types that
	// flightsql.BaseServer.RegisterSqlInfo takes. The Server adds the
	// entries that its Profile knows of (transactions, cancel, ingest).
	SQLInfo() map[flightsql.SqlInfo]any

	// Close ends the database, once, after all its sessions are closed.
	Close() error
}

// Attacher is an Engine that can have more catalogs. Start has it attach the one
// that its Profile names.
type Attacher interface {
	Attach(ctx context.Context, catalog string) error
}

// Session is one database session, for example one DuckDB connection.
//
// The Server calls it from one goroutine at a time: a call begins only after
// the one before it has returned and, for Query, after its rows are released.
//
// The end of ctx is the interrupt, and the only one: the statement that runs
// under it must stop within milliseconds, also while its rows are read, and
// fail. There is no Interrupt method, since one that comes early is lost and
// one that comes late hits the next statement.
//
// Errors: a gRPC status error is sent as it is. Any other is sent with the
// code that the Profile gives to statements that fail. Errors that mean "the
// transaction is aborted" or "that is not possible in this transaction state"
// wrap ErrTxState. Whatever SQL and parameters come, no call may panic.
type Session interface {
	// Describe tells of a statement without running it. Where Rows is
	// unknown the Server sends no schema before the stream.
	Describe(ctx context.Context, sql string) (Description, error)

	// Query runs a statement and returns its rows, of a schema without
	// fields when it has none. The caller releases them, at the end or
	// earlier. ctx covers the rows too. params (nil: none) has one column
	// per parameter; its rows are run one after another, their results
	// concatenated. A reader that also has the method RowsAffected() int64
	// tells the count of a statement without rows.
	Query(ctx context.Context, sql string, params arrow.RecordBatch) (array.RecordReader, error)

	// Update runs a statement for its effect, once for each row of params
	// (nil: once), and returns the rows affected, or -1 if unknown. The rows
	// that a statement returns are dropped.
	Update(ctx context.Context, sql string, params arrow.RecordBatch) (int64, error)

	// Begin, Commit and Rollback act on the session's one transaction.
	// Begin in a transaction and the others outside fail with ErrTxState.
	// Commit of an aborted transaction fails with ErrTxAborted, one that the
	// engine refuses (a conflict, a key stored twice) with ErrTxState, and
	// both roll back: after Commit and Rollback no transaction is open.
	Begin(ctx context.Context) error
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error

	// InTx reports whether a transaction is open, by Begin or by SQL text.
	InTx() bool

	// Savepoint, RollbackTo and Release act inside the transaction. Engines
	// without savepoints return ErrUnsupported.
	Savepoint(ctx context.Context, name string) error
	RollbackTo(ctx context.Context, name string) error
	Release(ctx context.Context, name string) error

	// Ingest stores rows in bulk, inside the transaction if one is open, and
	// returns how many. It does not release rows.
	Ingest(ctx context.Context, into IngestTarget, rows array.RecordReader) (int64, error)

	// Schemas and Tables list what this session sees, temporary tables
	// included, in a stable order. The Server filters them and makes the
	// Flight SQL results of them.
	Schemas(ctx context.Context) ([]Schema, error)
	Tables(ctx context.Context) ([]Table, error)

	// Close rolls back what is open, drops what is temporary and ends the
	// session.
	Close() error
}

// Errors of a Session that the Server acts upon.
var (
	// ErrTxState says that the transaction's state forbids the statement: it
	// is aborted, or already begun, or there is none.
	ErrTxState = errors.New("transaction state")

	// ErrTxAborted says that a statement before has aborted the transaction
	// which was to be committed.
	ErrTxAborted = fmt.Errorf("%w: the transaction was aborted and is rolled back", ErrTxState)

	// ErrUnsupported says that the engine does not have this at all. It is
	// sent as UNIMPLEMENTED.
	ErrUnsupported = errors.New("not supported by the engine")
)

// Description is what can be told of a statement before it runs.
type Description struct {
	// Rows is the schema of its result: without fields if it has no rows,
	// nil if that is unknown before it runs.
	Rows *arrow.Schema

	// Params has one field per parameter. It is nil if that is unknown, and
	// without fields if the statement has none.
	Params *arrow.Schema

	// Update says that the statement is run for its effect.
	Update bool
}

// IngestTarget is where Ingest stores.
type IngestTarget struct {
	Catalog, Schema string // empty: the session's own
	Table           string
	Temporary       bool
	Create          bool // create the table if it is missing, else fail
	Exists          IngestExists
	Options         map[string]string
}

// IngestExists tells what Ingest does with a table that exists.
type IngestExists uint8

// What Ingest does with a table that exists.
const (
	IngestAppend IngestExists = iota
	IngestFail
	IngestReplace
)

// Schema is a schema of a catalog.
type Schema struct{ Catalog, Name string }

// Table is a table or view.
type Table struct {
	Catalog, Schema, Name string
	Type                  string // "TABLE", "VIEW", "LOCAL TEMPORARY", ...
	Columns               *arrow.Schema
	PrimaryKey            []string // names of columns, in key order
}
