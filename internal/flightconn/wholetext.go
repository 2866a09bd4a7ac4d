package flightconn

import (
	"context"
	"errors"
	"strings"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/eof"
)

// Values of capabilities.texts: of which statement of a text the rows are.
const (
	textsUnknown int32 = iota
	textsWhole         // of the last
	textsCut           // of the first
)

// CutsTexts is part of backend.TextCutter. A server is asked once for the endpoint whose rows it gives: GizmoSQL those of the
// first statement, though it runs all of them, and, by its source, twice. SQLite's library compiles the first, and tells where the next one begins, at which Arrow's
// example in C++ for SQLite does not look, nor GizmoSQL with that backend, so that an update, too, is that of the first alone.
// Arrow's example in Go runs all of them. In a transaction only those are asked that are on SQLite, or run statements in whatever is open: another may
// abort it by a refusal. One of the latter (SwanLake) may run what comes behind a refusal outside of it, so that nothing does.
func (c *Conn) CutsTexts(ctx context.Context, asUpdate bool, tx backend.TxID) (bool, error) {
	known, inAnyTx := &c.endpoint.capabilities.texts, tx != "" && c.endpoint.capabilities.txIDs.Load() == txIDsIgnored
	if asUpdate || tx != "" && !inAnyTx && known.Load() == textsUnknown {
		onSQLite, err := c.runsOnSQLite(ctx)
		if errors.Is(err, errMalformed) { // what that one tells can be read
			err = nil
		}
		if !onSQLite {
			return false, err
		}
	}
	if known.Load() == textsUnknown {
		how, err := c.askTexts(ctx, tx)
		if err != nil && (inAnyTx || !backend.FaultIn(err).KeepsConn()) {
			return false, err
		}
		if how != textsUnknown {
			known.Store(how)
		}
	}
	return known.Load() == textsCut, nil
}

// askTexts has a text of two statements run.
func (c *Conn) askTexts(ctx context.Context, tx backend.TxID) (int32, error) {
	stream, err := c.Query(ctx, "SELECT 'first'; SELECT 'last'", backend.Call{Tx: tx})
	if err != nil {
		return textsUnknown, err
	}
	defer stream.Close()
	how := textsUnknown
	for {
		batch, err := stream.Next()
		switch {
		case eof.Reached(err):
			return how, nil
		case err != nil:
			return textsUnknown, err
		case batch.NumRows() == 0 || batch.NumCols() == 0:
		case strings.Contains(batch.Column(0).ValueStr(0), "first"): // in a union, where the server tells no type
			how = textsCut
		default:
			how = textsWhole
		}
	}
}
