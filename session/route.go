package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// Route says by which of Flight SQL's two calls a statement is sent.
type Route uint8

// The routes. A query gives rows, and some servers execute one twice: to tell
// its schema and to give its rows. An update is executed once and gives the
// number of rows affected.
const (
	// RouteAuto decides by the text: what returns rows is a query, what is
	// run for its effect an update. A text that changes something and whose
	// rows cannot be had surely by one execution is refused with
	// ErrAmbiguousRoute before anything is sent: always where the text leaves
	// it open, and on servers that may execute a query twice for every text
	// that changes something and returns rows. It is the default.
	RouteAuto Route = iota

	// RouteQuery sends the text as a query.
	RouteQuery

	// RouteUpdate sends the text as an update. Rows that it returns are lost.
	RouteUpdate
)

// ErrAmbiguousRoute says that a text does not tell how to send it so that it is
// executed once and its rows are not lost. Nothing was sent.
var ErrAmbiguousRoute = errors.New("the text does not tell whether it is a query or an update")

// sendsAsUpdate reports whether a text goes by the update call.
//
// INVARIANT: with RouteAuto no statement that might have rows goes by a call that drops
// them, and none that might change something by a call that the server executes twice:
// see requireSingleExecution. The last statement of a text decides, since a query call
// gives the rows of that one.
func (r Route) sendsAsUpdate(script sqlscan.Script) (bool, error) {
	switch {
	case r > RouteUpdate:
		return false, r.check()
	case r != RouteAuto, script.Empty():
		return r == RouteUpdate, nil
	case script.SyntaxFault != "":
		return false, ambiguousRoute(script.SyntaxFault)
	case script.ReadOnly():
		return false, nil
	}
	last := script.Statements[len(script.Statements)-1]
	switch {
	case last.Rows == sqlscan.RowsNone:
		return true, nil
	case last.Verb == "": // whose rows are not known either
		return false, ambiguousRoute("it does not begin with a verb")
	case !last.KnownVerb:
		return false, ambiguousRoute(last.Verb + " is not a verb of which it is known whether it returns rows")
	case last.Rows == sqlscan.RowsUnknown:
		return false, ambiguousRoute(last.Verb + " returns rows on some servers and none on others")
	case len(script.Statements) > 1:
		return false, ambiguousRoute("several statements in one text change something and return rows; they can be sent one by one on a session")
	case last.ChangesInsideQuery:
		return false, ambiguousRoute(last.Verb + " executes a change here and returns rows, which some servers execute twice when it is sent as a query")
	default:
		return false, nil
	}
}

// check refuses what is none of the routes.
func (r Route) check() error {
	if r > RouteUpdate {
		return fmt.Errorf("QueryOptions.Route %d is not one of RouteAuto, RouteQuery, RouteUpdate", r)
	}
	return nil
}

// ambiguousRoute is ErrAmbiguousRoute with its reason and what to do about it.
func ambiguousRoute(why string) error {
	return fmt.Errorf("%w: %s: set QueryOptions.Route to RouteQuery for its rows, or use Update for its effect", ErrAmbiguousRoute, why)
}

// requireSingleExecution has the call refused, before anything of it is sent, where its
// text changes something, returns rows, and the server may execute it twice. SwanLake
// does: it executes a query to tell its schema, and again for its rows. A server of
// which that cannot be found out is taken for one that does. It is asked before
// everything else that goes in front of the call, since a refusal is to leave nothing
// behind.
func (c *call) requireSingleExecution(route Route, script sqlscan.Script) {
	if route != RouteAuto || script.ReadOnly() || script.Rows() == sqlscan.RowsNone {
		return
	}
	server, mayRepeat := c.s.conn.(backend.QueryRepeater)
	if !mayRepeat {
		return
	}
	next := c.beforeSend
	c.beforeSend = func(ctx context.Context) error {
		if _, err := c.s.rollBackStrayTx(ctx); err != nil { // in which the question could begin no transaction
			return err
		}
		repeats, err := server.RepeatsQueries(ctx)
		if err != nil {
			err = notBegun(err)
		}
		switch {
		case err != nil && !backend.FaultIn(err).KeepsConn():
			return err
		case (err != nil || repeats) && c.asUpdate:
			return usageError(fmt.Errorf("%w: it changes something and returns rows, and this server may execute it when it is prepared: set QueryOptions.Route to RouteUpdate where that is done", ErrAmbiguousRoute))
		case err != nil || repeats:
			return usageError(ambiguousRoute("it changes something and returns rows, and this server may execute it twice"))
		}
		return next(ctx)
	}
}

// checkSingleStatement refuses a text of several statements where one is prepared:
// there are servers that execute the first ones while they prepare. A failure after
// that would be one of a call that was only to prepare.
func checkSingleStatement(script sqlscan.Script) error {
	if len(script.Statements) > 1 {
		return usageError(fmt.Errorf("a text that is prepared, or has parameters, must be one statement; this one has %d", len(script.Statements)))
	}
	return nil
}
