package flightconn

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// Ingest is part of backend.Conn. Rows are read as they are sent, so a call
// waits for its reader too, which must heed the same context. It does not
// release rows, which have a batch, if only one without rows: the server learns the
// schema of it.
//
// A server may have stored part of the rows when an ingest fails, unless it
// runs in a transaction. So a refusal of the credential, which may come in the
// middle of the rows, does not count as unsent here (wrapError).
func (c *Conn) Ingest(ctx context.Context, rows array.RecordReader, opts backend.IngestOptions, call backend.Call) (int64, error) {
	if err := c.CheckRows(ctx, rows.Schema(), call); err != nil {
		return 0, err
	}
	ctx, r, err := c.begin(ctx, "Ingest", call.Headers)
	if err != nil {
		return 0, err
	}
	defer r.end()
	if opts.Table == "" {
		return 0, r.usageError("no table")
	}
	if opts.Mode > backend.IngestReplace || opts.Compression > backend.IngestZSTD {
		return 0, r.usageError("mode %d or compression %d does not exist", opts.Mode, opts.Compression)
	}
	if err := CheckSendable(rows.Schema()); err != nil {
		return 0, r.usageError("rows: %w", err)
	}
	cmd := ingestCommand(opts)
	cmd.TransactionId = r.txID(call.Tx)
	desc, err := r.descriptor(cmd)
	if err != nil {
		return 0, r.wrapError(backend.StageExecute, err)
	}
	e := newEncoder(desc, rows.Schema(), c.cfg().RequestLimit, compression(opts.Compression)...)
	defer e.close()
	n, err := r.putCount(ctx, e.source(ctx, rows, call.Op), readsEnd)
	if err != nil {
		return 0, r.wrapError(backend.StageExecute, err)
	}
	return n, nil
}

// source encodes rows as they are asked for. The reader is asked for its next batch when
// all messages of the one before were sent, and not before.
//
// ctx is looked at between two batches alone, since a reader cannot be
// interrupted. A reader that fails ends the RPC without its end being sent, so
// that the server does not take what came before for all: see also rpcCall.spoil.
//
// op is told of a batch that is sent in parts, before any of them is.
func (e *encoder) source(ctx context.Context, rows array.RecordReader, op *backend.Operation) messageSource {
	var ready []*putMessage
	ended := false
	return func() (*putMessage, error) {
		for len(ready) == 0 && !ended {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			var err error
			switch {
			case rows.Next():
				if ready, err = e.encode(rows.RecordBatch()); e.cuts {
					op.MarkSplit()
				}
			case rows.Err() != nil:
				return nil, rows.Err()
			default:
				ended = true
			}
			if err != nil {
				return nil, err
			}
		}
		if len(ready) == 0 {
			return nil, nil
		}
		next := ready[0]
		ready = ready[1:]
		return next, nil
	}
}

// ingestCommand is the command for opts. The zero mode creates the table if it
// is missing and appends otherwise. Catalog and schema are absent, not empty,
// where the session's own are meant: an empty name is not the absence of one.
func ingestCommand(opts backend.IngestOptions) *pb.CommandStatementIngest {
	type table = pb.CommandStatementIngest_TableDefinitionOptions
	define := &table{
		IfNotExist: pb.CommandStatementIngest_TableDefinitionOptions_TABLE_NOT_EXIST_OPTION_CREATE,
		IfExists:   pb.CommandStatementIngest_TableDefinitionOptions_TABLE_EXISTS_OPTION_APPEND,
	}
	switch opts.Mode {
	case backend.IngestCreate:
		define.IfExists = pb.CommandStatementIngest_TableDefinitionOptions_TABLE_EXISTS_OPTION_FAIL
	case backend.IngestReplace:
		define.IfExists = pb.CommandStatementIngest_TableDefinitionOptions_TABLE_EXISTS_OPTION_REPLACE
	case backend.IngestAppend:
		define.IfNotExist = pb.CommandStatementIngest_TableDefinitionOptions_TABLE_NOT_EXIST_OPTION_FAIL
	case backend.IngestCreateAppend:
	}
	cmd := &pb.CommandStatementIngest{
		TableDefinitionOptions: define, Table: opts.Table, Temporary: opts.Temporary, Options: opts.Options,
	}
	if opts.Catalog != "" {
		cmd.Catalog = &opts.Catalog
	}
	if opts.Schema != "" {
		cmd.Schema = &opts.Schema
	}
	return cmd
}

// compression is the writer's option for bodies; none leaves them as they are.
func compression(c backend.IngestCompression) []ipc.Option {
	switch c {
	case backend.IngestLZ4:
		return []ipc.Option{ipc.WithLZ4()}
	case backend.IngestZSTD:
		return []ipc.Option{ipc.WithZstd()}
	default:
		return nil
	}
}
