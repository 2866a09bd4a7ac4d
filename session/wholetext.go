package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

var errFirstAlone = errors.New("this server runs the first of several statements alone, and confirms the others: send them one by one")
var errFirstRows = errors.New("this server gives the rows of the first of several statements: send them one by one")

// requireWholeText has a text of several statements refused, before anything of it is sent, that the server takes for its first
// one: a change would be told as made, and rows would be those of another statement than the last.
func (c *call) requireWholeText(script sqlscan.Script) {
	server, mayCut := c.s.conn.(backend.TextCutter)
	if !mayCut || len(script.Statements) < 2 {
		return
	}
	next := c.beforeSend
	c.beforeSend = func(ctx context.Context) error {
		cuts, err := server.CutsTexts(ctx, c.asUpdate, c.backendCall.Tx)
		switch {
		case err != nil:
			return err
		case cuts && c.asUpdate:
			return unsupported(errFirstAlone)
		case cuts:
			return unsupported(errFirstRows)
		case next == nil: // of a session of one call
			return nil
		default:
			return next(ctx)
		}
	}
}

// unsupported is usageError for what the server lacks.
func unsupported(why error) error {
	e := usageError(why)
	e.Fault = backend.FaultUnsupported
	return e
}

// execWhole is execSecret for a statement of the owner's, which may be several.
func (s *SessionHandle) execWhole(ctx context.Context, sql string) error {
	script := sqlscan.Parse(sql)
	if name := script.SettingRunAlone(); name != "" {
		return usageError(fmt.Errorf("SET %s is a statement of its own", name))
	}
	if server, mayCut := s.conn.(backend.TextCutter); mayCut && len(script.Statements) > 1 {
		cuts, err := server.CutsTexts(ctx, true, "")
		if err == nil && cuts {
			err = unsupported(errFirstAlone)
		}
		if err != nil {
			return err
		}
	}
	return s.execSecret(ctx, sql, backend.Call{})
}
