package flightconn

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/effect"

	"google.golang.org/grpc/status"
)

// orderLocations is the order in which locations are tried: the server's, but
// those that could not be reached a short time ago come last. Nothing is left
// out, since what was down may be back. uris itself is not changed.
func (e *Endpoint) orderLocations(uris []string) []string {
	if len(uris) < 2 || !e.locations.anyDown() {
		return uris
	}
	down := func(uri string) int {
		at, err := e.cfg.resolveLocation(uri)
		if err == nil && e.locations.isDown(at) {
			return 1
		}
		return 0
	}
	uris = slices.Clone(uris)
	slices.SortStableFunc(uris, func(a, b string) int { return down(a) - down(b) })
	return uris
}

// failedLocations is what the locations of an endpoint answered. It is made for
// the error alone.
type failedLocations struct {
	n         int
	ownErr    error // the connection's own transport
	otherErrs []error
	texts     []string
	untried   int
}

// add takes note of one failure. here says that it is the connection's own
// transport that has failed.
func (f *failedLocations) add(uri string, err error, here bool) {
	f.n++
	f.texts = append(f.texts, redactLocation(uri)+": "+err.Error())
	if here {
		f.ownErr = err
	} else {
		f.otherErrs = append(f.otherErrs, err)
	}
}

// err is judged by what the connection's own transport answered, if it was
// asked: its failure is not the statement's. Its cause is the first in the
// chain then, where a status or a loss is looked for. Otherwise the error is a
// *locationError, which leaves the connection as good as before.
func (f *failedLocations) err() error {
	e := &noLocationError{text: fmt.Sprintf("none of %d locations answers: %s", f.n, strings.Join(f.texts, "; ")), causes: f.otherErrs}
	if f.untried > 0 {
		e.text += fmt.Sprintf("; %d more were not tried", f.untried)
	}
	if f.ownErr != nil {
		e.causes = append([]error{f.ownErr}, f.otherErrs...)
		return e
	}
	return &locationError{e}
}

// noLocationError says that no location had the rows. Its text names each with
// its failure, without what may be secret (redactLocation).
type noLocationError struct {
	text   string
	causes []error
}

func (e *noLocationError) Error() string   { return e.text }
func (e *noLocationError) Unwrap() []error { return e.causes }

// locationError says that rows could not be had from another server. The
// connection has no part in it. wrapError makes it the statement's fault,
// unless the connection's own transport has ended as well.
type locationError struct{ err error }

func (e *locationError) Error() string { return e.err.Error() }
func (e *locationError) Unwrap() error { return e.err }

// withLocation names the location in an error of its stream. An empty location
// is the connection's own transport.
func withLocation(location string, err error) error {
	if location == "" {
		return err
	}
	return &locationError{fmt.Errorf("location %s: %w", location, err)}
}

// unshownError is the refusal of a location that was shown no credentials.
type unshownError struct{ err error }

func (e *unshownError) Error() string {
	return e.err.Error() + " (credentials do not go to other hosts; Config.Locations decides)"
}
func (e *unshownError) Unwrap() error { return e.err }

// statementFailed reports whether err is the server's answer that the statement itself
// fails. An error without a status, such as that of a dial, says nothing of it, and neither
// does a proxy's page, or a refusal for want of credentials.
func statementFailed(err error) bool {
	var s interface{ GRPCStatus() *status.Status }
	var unshown *unshownError
	return errors.As(err, &s) && !effect.IsPage(err) && !errors.As(err, &unshown) && backend.FaultOf(s.GRPCStatus().Code(), s.GRPCStatus().Message()) == backend.FaultStatement
}

// SessionBusy reports whether a server has refused an RPC since it serves another of the session:
// nothing of it was done.
func SessionBusy(err error) bool {
	if !statementFailed(err) {
		return false
	}
	text := strings.ToLower(err.Error())
	return strings.Contains(text, "session") && (strings.Contains(text, "is locked") || strings.Contains(text, "active operation"))
}

// turnedAway reports whether err is a server's answer that says that it has not looked at
// the statement: it does not take the credential, or has no such RPC. A page of HTTP is none: a
// proxy may have put it in place of the answer to what has run.
func turnedAway(err error) bool {
	var s interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &s) || effect.IsPage(err) {
		return false
	}
	fault := backend.FaultOf(s.GRPCStatus().Code(), s.GRPCStatus().Message())
	return fault == backend.FaultAuth || fault == backend.FaultUnsupported
}
