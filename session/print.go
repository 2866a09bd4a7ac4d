package session

import (
	"fmt"
	"log/slog"
	"reflect"

	"github.com/flightpool/flightpool/internal/printing"
)

// What the handles print is said here: fmt would walk into what they hold, the
// headers of a call among it, in which credentials stand.

// String names the type; what a handle holds is not shown.
func (s *SessionHandle) String() string { return "flightpool session of " + s.policy.Target }

// Format prints String under every verb.
func (s *SessionHandle) Format(f fmt.State, _ rune) { printing.Format(f, s.String()) }

// String names the type; what a result holds is not shown.
func (r *QueryResult) String() string { return "flightpool query result" }

// Format prints String under every verb.
func (r *QueryResult) Format(f fmt.State, _ rune) { printing.Format(f, r.String()) }

// String names the type; what a prepared statement holds is not shown.
func (q *PreparedQuery) String() string { return "flightpool prepared query" }

// Format prints String under every verb.
func (q *PreparedQuery) Format(f fmt.State, _ rune) { printing.Format(f, q.String()) }

// String shows the options, of Headers the names only.
func (o QueryOptions) String() string {
	return fmt.Sprintf("flightpool.QueryOptions{Timeout: %v, Retry: %d, Route: %d, Params: %t, Args: %d, Headers: %s, NoCancel: %t}",
		o.Timeout, o.Retry, o.Route, o.Params != nil, len(o.Args), printing.Keys(reflect.ValueOf(o.Headers)), o.NoCancel)
}

// Format prints String under every verb.
func (o QueryOptions) Format(f fmt.State, _ rune) { printing.Format(f, o.String()) }

// LogValue is String, for slog.
func (o QueryOptions) LogValue() slog.Value { return slog.StringValue(o.String()) }

// MarshalJSON gives String.
func (o QueryOptions) MarshalJSON() ([]byte, error) { return printing.JSON(o.String()) }
