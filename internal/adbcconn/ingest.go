package adbcconn

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/flightconn"
	"github.com/flightpool/flightpool/internal/ipcwrite"
)

// Ingest is part of backend.Conn. The driver has neither compression nor
// options of a server's own, and leaves out dictionaries (package ipcwrite); with those the
// native connection ingests. Rows are
// split so that no message exceeds the server's limit, which the driver does
// not look at. A single row that does is the caller's fault while nothing was
// sent, and of unknown outcome once parts were.
func (c *Conn) Ingest(ctx context.Context, rows array.RecordReader, opts backend.IngestOptions, sc backend.Call) (int64, error) {
	if opts.Compression != backend.IngestUncompressed || len(opts.Options) > 0 || ipcwrite.HasDictionary(rows.Schema()) {
		return c.Conn.Ingest(ctx, rows, opts, sc)
	}
	if err := c.CheckRows(ctx, rows.Schema(), sc); err != nil {
		return 0, err
	}
	k, err := c.begin(ctx, "Ingest", sc)
	if err != nil {
		return 0, err
	}
	defer k.end()
	k.sendsRows, k.ingests = true, true
	stmt, err := c.cn.NewStatement()
	if err != nil {
		return 0, k.external.Usage(WithCause(err, nil))
	}
	defer func() { _ = stmt.Close() }()
	if err := setIngest(stmt, opts); err != nil {
		return 0, k.external.Usage(WithCause(err, nil))
	}
	if err := flightconn.CheckSendable(rows.Schema()); err != nil {
		return 0, k.external.Usage(fmt.Errorf("rows: %w", err))
	}
	parts := newSplitReader(rows, k.external.RequestLimit(), sc.Op)
	defer parts.releaseUnread()
	if err := stmt.BindStream(k.ctx, parts); err != nil {
		return 0, k.external.Usage(WithCause(err, nil))
	}
	n, err := k.load(stmt, parts)
	switch large := parts.splitErr(); {
	case large == nil || ctx.Err() != nil:
	case parts.given: // the server has rows already
		return 0, k.external.WrapError(backend.StageExecute, large)
	default:
		return 0, k.external.Usage(large)
	}
	return n, err
}
