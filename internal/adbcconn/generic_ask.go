package adbcconn

import (
	"context"
	"strings"

	"github.com/flightpool/flightpool/backend"
)

// What a driver is asked beside the calls of its user's: its statements need no tracking, since they end before the call does.

func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// textRows are the rows of a query of two columns of texts. The caller holds driverLock.
func (c *GenericConn) textRows(ctx context.Context, sql string) (rows [][2]string, err error) {
	stmt, err := c.statement(sql, backend.Call{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = stmt.Close() }()
	reader, _, err := stmt.ExecuteQuery(ctx)
	if err != nil {
		return nil, err
	}
	defer reader.Release()
	for {
		if more, err := hasNext(ctx, reader); !more {
			return rows, err
		}
		batch := reader.RecordBatch()
		for i := range int(batch.NumRows()) {
			rows = append(rows, [2]string{strings.Clone(batch.Column(0).ValueStr(i)), strings.Clone(batch.Column(1).ValueStr(i))})
		}
	}
}

// runText runs a statement without rows. The caller holds driverLock.
func (c *GenericConn) runText(ctx context.Context, sql string) error {
	stmt, err := c.statement(sql, backend.Call{})
	if err != nil {
		return err
	}
	defer func() { _ = stmt.Close() }()
	_, err = stmt.ExecuteUpdate(ctx)
	return err
}
