package session

import (
	"errors"
	"fmt"

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
	// ErrAmbiguousRoute before anything is sent. It is the default.
	RouteAuto Route = iota

	// RouteQuery sends the text as a query.
	RouteQuery

	// RouteUpdate sends the text as an update. Rows that it returns are lost.
	RouteUpdate
)

// ErrAmbiguousRoute says that a text does not tell how to send it so that it is
// executed once and its rows are not lost. Nothing was sent.
var ErrAmbiguousRoute = errors.New("the text does not tell whether it is a query or an update")

// byUpdate reports whether a text goes by the update call.
//
// INVARIANT: with RouteAuto no statement that might change something goes by a
// call that a server executes twice, and none that might have rows by a call
// that drops them.
func (r Route) byUpdate(script sqlscan.Script) (bool, error) {
	switch {
	case r > RouteUpdate:
		return false, fmt.Errorf("QueryOptions.Route %d is not one of RouteAuto, RouteQuery, RouteUpdate", r)
	case r != RouteAuto, script.Empty():
		return r == RouteUpdate, nil
	case script.Fault != "":
		return false, ambiguous(script.Fault)
	case script.ReadOnly():
		return false, nil
	}
	last := script.Statements[len(script.Statements)-1]
	switch {
	case last.Rows == sqlscan.RowsNone:
		return true, nil
	case last.Rows == sqlscan.RowsUnknown && last.Verb == "":
		return false, ambiguous("it does not begin with a verb")
	case !last.Known:
		return false, ambiguous(last.Verb + " is not a verb of which it is known whether it returns rows")
	case last.Rows == sqlscan.RowsUnknown:
		return false, ambiguous(last.Verb + " returns rows on some servers and none on others")
	case len(script.Statements) > 1:
		return false, ambiguous("several statements in one text change something and return rows; they can be sent one by one on a session")
	case last.Wrapped:
		return false, ambiguous(last.Verb + " executes a change here and returns rows, which some servers execute twice when it is sent as a query")
	default:
		return false, nil
	}
}

func ambiguous(why string) error {
	return fmt.Errorf("%w: %s: set QueryOptions.Route to RouteQuery for its rows, or use Update for its effect", ErrAmbiguousRoute, why)
}

// single refuses a text of several statements where one is prepared: there are
// servers that execute the first ones while they prepare.
func single(script sqlscan.Script) error {
	if len(script.Statements) > 1 {
		return usage(fmt.Errorf("a text that is prepared, or has parameters, must be one statement; this one has %d", len(script.Statements)))
	}
	return nil
}
