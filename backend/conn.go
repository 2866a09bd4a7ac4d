package backend

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/cancel"
	"github.com/flightpool/flightpool/internal/printing"
)

// Conn is the interface between the pool and a backend: one physical connection,
// which is one transport, one credential and one server session.
// Package backendtest is its conformance suite.
//
// A Conn serves one call at a time; the session that holds it sees to that.
// CancelSteps, Lost and Close alone may be called while another call runs.
//
// Every method honours its context: it returns within 50 ms of the context's
// end, whether or not the server answers. Errors are *Error values whose Fault
// tells what became of the connection.
//
// INVARIANT: a Conn never changes its transport. When the transport ends, Lost
// reports why and every later call fails with ErrSessionLost before anything
// is sent.
type Conn interface {
	// Query runs a statement that returns rows. It returns once the schema
	// is known. ctx covers the stream too: its end fails the stream.
	Query(ctx context.Context, sql string, call Call) (Stream, error)

	// Update runs a statement for its effect, exactly once, and returns the
	// number of rows affected, or -1 when the server does not tell.
	Update(ctx context.Context, sql string, call Call) (int64, error)

	// Prepare makes a prepared statement that lives until its Close or the
	// end of the connection.
	Prepare(ctx context.Context, sql string, call Call) (Prepared, error)

	// Ingest loads rows in bulk and returns how many were stored, or -1. It
	// does not release rows. They have a batch, if only one without rows. Where
	// they fail with an error that has a method CallerLeft, nobody waits for it.
	Ingest(ctx context.Context, rows array.RecordReader, opts IngestOptions, call Call) (int64, error)

	// Metadata runs one catalogue call.
	Metadata(ctx context.Context, req MetadataRequest, call Call) (Stream, error)

	// Begin opens a transaction. The returned id goes into Call.Tx.
	Begin(ctx context.Context) (TxID, error)

	// EndTx commits or rolls back. It reports what the server said of this
	// very transaction and nothing else; it never retries.
	EndTx(ctx context.Context, tx TxID, commit bool) error

	// Savepoint and EndSavepoint act inside tx. A server without savepoints
	// gives FaultUnsupported.
	Savepoint(ctx context.Context, tx TxID, name string) (SavepointID, error)
	EndSavepoint(ctx context.Context, sp SavepointID, end SavepointEnd) error

	// SetOptions and Options are the Flight session options. A server
	// without them gives FaultUnsupported.
	SetOptions(ctx context.Context, opts map[string]any) error
	Options(ctx context.Context) (map[string]any, error)

	// Ping makes the cheapest round trip that reaches the server's session
	// layer. A nil error means the server answered.
	Ping(ctx context.Context) error

	// RejectsUnknownTx reports whether the server refuses to end a transaction
	// that it does not know. Where it does not, a COMMIT that the server
	// confirms may be that of a session which is gone. A server without
	// transactions has shown nothing, and is not trusted either. The answer
	// is learned once per endpoint.
	RejectsUnknownTx(ctx context.Context) (bool, error)

	// CancelSteps lists the ways to stop op on the server other than ending
	// its RPC, best first, each on a control channel that carries the same
	// session identity. Ways that the endpoint is known to refuse are left
	// out. The steps may run while op does.
	CancelSteps(op *Operation) []cancel.Step

	// Lost is nil while the transport lives, and tells why it ended after.
	// A reason that wraps ErrSessionReplaced says that answers may have come
	// from another session; it does so whatever else has ended the transport
	// before.
	Lost() error

	// Close ends the server session, as far as the server lets us, and the
	// transport, within a bound of its own. Calls under way fail. Later
	// calls of Close do nothing.
	Close() error
}

// Stream is the result of a query, read by one goroutine.
type Stream interface {
	// Schema is never nil.
	Schema() *arrow.Schema

	// Next returns the next batch, which is valid until the following Next
	// or Close unless retained, or io.EOF itself at the end. An error that
	// only wraps io.EOF is a failure.
	Next() (arrow.RecordBatch, error)

	// RowsAffected is the server's count for a statement without rows.
	RowsAffected() (int64, bool)

	// Close ends the RPCs of the stream and their goroutines. It may be
	// called at any time, more than once, and does not wait for the server. What
	// follows it answers ErrHandleClosed, or still io.EOF after the regular end.
	Close()
}

// Prepared is a prepared statement of one Conn. It runs in the transaction that Call.Tx names, or,
// where it is a HandleTeller, in that of its preparing.
type Prepared interface {
	// ParameterSchema is nil when the server does not tell.
	ParameterSchema() *arrow.Schema

	// Query and Update bind params (nil: none) and run. params are split so
	// that no request exceeds the server's message limit; a single row that
	// does is FaultUsage with nothing sent.
	Query(ctx context.Context, params arrow.RecordBatch, call Call) (Stream, error)
	Update(ctx context.Context, params arrow.RecordBatch, call Call) (int64, error)

	// Close frees the handle on the server.
	Close(ctx context.Context) error
}

// TxID names a transaction on its server. It is empty outside transactions.
type TxID string

// SavepointID names a savepoint on its server.
type SavepointID string

// SavepointEnd tells what becomes of a savepoint.
type SavepointEnd uint8

// The two ends of a savepoint.
const (
	SavepointRelease SavepointEnd = iota
	SavepointRollback
)

// Call carries what a single call needs beside its statement.
type Call struct {
	Tx      TxID        // the transaction to run in, or empty
	Headers metadata.MD // extra headers of this call's RPCs
	Op      *Operation  // filled by the backend, read by CancelSteps; may be nil

	// MayChange says of a query that its statement may change something. What may have
	// reached a server that executes it is not sent to a second one.
	MayChange bool

	// ChangesSeveral says besides that it changes several things, by the statements of a text or
	// the rows of its parameters: whatever a server refuses it by, some of it may be done.
	ChangesSeveral bool

	// Prove, when not nil, recognises the session, by calls of the Conn, for an Update, or the
	// Prepare of one, outside of transactions. A Conn that may be led to another session
	// unseen calls it, and runs the statement in that session or not at all. Others ignore it.
	Prove func(ctx context.Context) error

	// Progress, when not nil, hears how far a query is while it is planned,
	// from the call's goroutine. Backends that cannot tell ignore it.
	Progress func(fraction float64, known bool)
}

// IngestMode tells what to do with the target table of an Ingest.
type IngestMode uint8

// What Ingest does when the table exists, or does not.
const (
	IngestCreateAppend IngestMode = iota // create it if missing, append otherwise (default)
	IngestCreate                         // fail if it exists
	IngestAppend                         // fail if it is missing
	IngestReplace                        // drop and create it
)

// IngestCompression is the compression of the Arrow buffers on the wire.
type IngestCompression uint8

// Compressions that every Arrow server can read.
const (
	IngestUncompressed IngestCompression = iota
	IngestLZ4
	IngestZSTD
)

// IngestOptions tells where and how Ingest stores its rows. What a server does
// not support of it, it refuses.
type IngestOptions struct {
	Table           string // set by Ingest from its argument
	Catalog, Schema string // empty: the session's own
	Mode            IngestMode
	Temporary       bool // into a temporary table of the session
	Compression     IngestCompression
	Options         map[string]string // of the server's own; over adbcpool.New of the driver's statement
	Headers         metadata.MD       // sent with the call's RPCs
}

// MetadataKind names a catalogue call.
type MetadataKind uint8

// The catalogue calls of Flight SQL.
const (
	MetadataCatalogs MetadataKind = iota
	MetadataSchemas
	MetadataTables
	MetadataTableTypes
	MetadataPrimaryKeys
	MetadataImportedKeys
	MetadataExportedKeys
	MetadataSQLInfo
	MetadataTypeInfo
)

// String names the call, as errors do.
func (k MetadataKind) String() string {
	names := [...]string{"Catalogs", "Schemas", "Tables", "TableTypes", "PrimaryKeys", "ImportedKeys", "ExportedKeys", "SQLInfo", "TypeInfo"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("Metadata(%d)", uint8(k))
}

// MetadataRequest is a catalogue call and its filters; nil pointers and empty
// slices mean no filter. The filter patterns are SQL LIKE patterns.
type MetadataRequest struct {
	Kind           MetadataKind
	Catalog        *string
	Schema         *string // a pattern; exact for the key calls
	Table          *string // a pattern; exact for the key calls
	TableTypes     []string
	IncludeColumns bool     // MetadataTables: with each table's Arrow schema
	Info           []uint32 // MetadataSQLInfo: the codes wanted, none for all
}

// String shows the call, of Headers the names only.
func (c Call) String() string { return printing.Struct("backend.Call", c) }

// Format prints String under every verb.
func (c Call) Format(f fmt.State, _ rune) { printing.Format(f, c.String()) }

// LogValue is String, for slog.
func (c Call) LogValue() slog.Value { return slog.StringValue(c.String()) }

// MarshalJSON gives String.
func (c Call) MarshalJSON() ([]byte, error) { return printing.JSON(c.String()) }

// String shows the options, of Headers and of the server's own the names only.
func (o IngestOptions) String() string { return printing.Struct("flightpool.IngestOptions", o) }

// Format prints String under every verb.
func (o IngestOptions) Format(f fmt.State, _ rune) { printing.Format(f, o.String()) }

// LogValue is String, for slog.
func (o IngestOptions) LogValue() slog.Value { return slog.StringValue(o.String()) }

// MarshalJSON gives String. It cannot be read back.
func (o IngestOptions) MarshalJSON() ([]byte, error) { return printing.JSON(o.String()) }
