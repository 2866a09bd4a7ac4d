package registry

import (
	"errors"
	"fmt"
	"time"

	"github.com/flightpool/flightpool/flightpool"
)

// What the calls fail with; reach them with errors.Is.
var (
	// ErrClosed says that the registry is closed or closing.
	ErrClosed = flightpool.ErrClosed
	// ErrExhausted says that no connection came free in time. The error is an
	// *ExhaustedError.
	ErrExhausted = flightpool.ErrExhausted
	// ErrUnhealthy says that the server is taken to be unreachable. The error is
	// an *UnhealthyError.
	ErrUnhealthy = flightpool.ErrUnhealthy
	// ErrUnknownServer says that no server of the name is registered.
	ErrUnknownServer = errors.New("registry: unknown server")
	// ErrExists says that a server of the name is registered already.
	ErrExists = errors.New("registry: server exists already")
	// ErrNoMapping says that the server knows neither the local user nor PUBLIC.
	ErrNoMapping = errors.New("registry: no user mapping")
	// ErrReleased says that a connection was given back before.
	ErrReleased = errors.New("registry: connection is not borrowed")
	// ErrWrongKind says that the server's kind does not have the call.
	ErrWrongKind = errors.New("registry: not a call of this kind of server")
)

// DefinitionError says everything that is wrong with a definition.
type DefinitionError struct {
	Server string
	Err    error
}

func (e *DefinitionError) Error() string {
	return fmt.Sprintf("registry: server %q: %v", e.Server, e.Err)
}

// Unwrap gives the faults.
func (e *DefinitionError) Unwrap() error { return e.Err }

// UnhealthyError says why and since when a server is taken to be unreachable.
type UnhealthyError struct {
	Server string
	Reason error     // the latest fault
	Since  time.Time // of the first fault in the row
	Next   time.Time // of the next probe
}

func (e *UnhealthyError) Error() string {
	return fmt.Sprintf("registry: server %q is unhealthy since %s: %v", e.Server, e.Since.Format(time.RFC3339), e.Reason)
}

// Unwrap gives ErrUnhealthy and the reason.
func (e *UnhealthyError) Unwrap() []error { return []error{ErrUnhealthy, e.Reason} }

// ExhaustedError says why a user got no connection.
type ExhaustedError struct {
	Server, User string
	// ServerConnections of at most MaxSize exist, of which the user has
	// UserConnections.
	ServerConnections, MaxSize, UserConnections int
	// Waiting counts the user's other callers who wait.
	Waiting int
	// Err is the pool's own account of it.
	Err error
}

func (e *ExhaustedError) Error() string {
	return fmt.Sprintf("registry: user %q on server %q: %d of %d connections exist, %d of them the user's, %d waiting: %v",
		e.User, e.Server, e.ServerConnections, e.MaxSize, e.UserConnections, e.Waiting, e.Err)
}

// Unwrap gives ErrExhausted and the pool's error.
func (e *ExhaustedError) Unwrap() []error { return []error{ErrExhausted, e.Err} }

// DrainError says what the end of a server, or of its connections, has not waited for: users'
// pools whose loans were taken back, and what has not returned.
type DrainError struct {
	Server string // empty: changes of definitions, whichever server's
	Err    error
}

func (e *DrainError) Error() string {
	if e.Server == "" {
		return fmt.Sprintf("registry: drain: %v", e.Err)
	}
	return fmt.Sprintf("registry: server %q: drain: %v", e.Server, e.Err)
}

// Unwrap gives the reasons.
func (e *DrainError) Unwrap() error { return e.Err }

func unknownServerError(name string) error { return fmt.Errorf("%w %q", ErrUnknownServer, name) }
