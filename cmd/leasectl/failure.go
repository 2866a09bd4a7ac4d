package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/spf13/pflag"

	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/lease/fleet"
	"github.com/flightpool/flightpool/lease/pglease"
)

// The exit codes, as rootHelp tells them.
const (
	exitOK = iota
	exitFailure
	exitUsage
	exitMissing
	exitRefused
	exitDenied
	exitUnknown
)

// A failure is an error whose exit code is known.
type failure struct {
	code int
	err  error
}

func (f *failure) Error() string { return f.err.Error() }

// Unwrap gives the cause.
func (f *failure) Unwrap() error { return f.err }

// An output tells its failures apart from those of the network: a full disk is no table
// that does not answer, though both are errors of the system.
type output struct{ io.Writer }

func (o output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if err != nil {
		err = &failure{exitFailure, fmt.Errorf("the output cannot be written: %w", err)}
	}
	return n, err
}

// flagError prints no more than a name of what is no flag: -p with a password behind it is
// one elsewhere.
func flagError(err error) error {
	var unknown *pflag.NotExistError
	var malformed *pflag.InvalidSyntaxError
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		return fmt.Errorf("unknown flag: -%s", unknown.GetSpecifiedName())
	case errors.As(err, &malformed):
		return errors.New("bad flag syntax: no name behind --")
	}
	return err
}

func exitCode(err error) int {
	var known *failure
	var missing *types.ResourceNotFoundException
	switch {
	case errors.As(err, &known):
		return known.code
	case errors.As(err, &missing), errors.Is(err, fleet.ErrNoBudget), refusedBy(err, fs.ErrNotExist):
		return exitMissing
	case errors.Is(err, context.Canceled) && !errors.Is(err, lease.ErrUnavailable): // no change was under way
		return exitFailure
	case isDenied(err):
		return exitDenied
	case isUnanswered(err):
		return exitUnknown
	}
	return exitFailure
}

// deniedCodes are AWS's for credentials and rights that do not suffice.
var deniedCodes = []string{
	"AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException", "MissingAuthenticationTokenException",
	"IncompleteSignatureException", "ExpiredTokenException", "ExpiredToken", "InvalidClientTokenId", "SignatureDoesNotMatch",
}

// refusedBy reports whether a store refused what was asked for a reason.
func refusedBy(err, reason error) bool {
	var wrong *fleet.ConfigError
	return errors.As(err, &wrong) && errors.Is(err, reason)
}

func isDenied(err error) bool {
	if refusedBy(err, fs.ErrPermission) {
		return true
	}
	var code smithy.APIError
	if errors.As(err, &code) && slices.Contains(deniedCodes, code.ErrorCode()) {
		return true
	}
	return err != nil && strings.Contains(err.Error(), "get identity: get credentials")
}

func isUnanswered(err error) bool {
	var network net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, lease.ErrUnavailable) || errors.As(err, &network)
}

// mayPass says that a failure may end by itself: no answer, or one such as that of a
// PostgreSQL which starts, has no connection free, or is a standby in a failover.
func mayPass(err error) bool {
	code := exitCode(err)
	return code == exitUnknown || code == exitFailure && !isPermanent(err) || errors.Is(err, pglease.ErrStandby)
}

// connectionStrings are those of args and of values of flags that are one, and may have
// a password: wherever it was given, also in place of a table's or budget's name.
func connectionStrings(args []string) (found []string) {
	for _, arg := range args {
		if _, value, ok := strings.Cut(arg, "="); ok && strings.HasPrefix(arg, "-") {
			arg = value
		}
		if isConnectionString(arg) {
			found = append(found, arg)
		}
	}
	return found
}

// passwordKeyword is how a connection string has its password, as keywords or as a URL's parameter.
var passwordKeyword = regexp.MustCompile(`(?i)password\s*=`)

// isConnectionString knows both forms, URL and keywords.
func isConnectionString(text string) bool {
	return strings.Contains(text, "://") && strings.Contains(text, "@") || passwordKeyword.MatchString(text)
}

// report prints an error, and what to do, on lines of their own.
func (a *app) report(err error) {
	text := err.Error()
	for _, hidden := range a.hidden {
		quoted := strconv.Quote(hidden)
		text = strings.NewReplacer(hidden, "(a connection string)", quoted[1:len(quoted)-1], "(a connection string)").Replace(text)
	}
	text = oneLine(text)
	if errors.Is(err, context.Canceled) {
		text = "interrupted: " + text
	}
	fmt.Fprintln(a.err, "leasectl: "+text)
	if hint := hint(err); hint != "" {
		fmt.Fprintln(a.err, "  "+hint)
	}
}

func hint(err error) string {
	var known *failure
	if errors.As(err, &known) {
		if known.code == exitUsage {
			return "see leasectl help"
		}
		return ""
	}
	if wrong := (*fleet.ConfigError)(nil); errors.As(err, &wrong) && !errors.As(err, new(smithy.APIError)) {
		return "" // it says what to do
	}
	switch exitCode(err) {
	case exitDenied:
		return "reading needs valid credentials and dynamodb:GetItem and BatchGetItem, finding budgets without --budget needs dynamodb:Scan, " +
			"limit and free need dynamodb:UpdateItem"
	case exitMissing:
		return "compare --table, --region and --budget with those of the fleet; leasectl show without --budget lists the budgets"
	case exitUnknown:
		text := "the table did not answer: mind --timeout, and where the table is (--region and --endpoint, or --postgres)"
		if errors.Is(err, lease.ErrUnavailable) {
			text = "a change may have been made: see leasectl show; " + text
		}
		return text
	}
	return ""
}

// oneLine makes a line of an error's text. AWS answers a wrong signature with
// the text that was to be signed, session token included: that is left out.
func oneLine(text string) string {
	text, _, _ = strings.Cut(text, "The Canonical String")
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return printable(strings.Join(lines, ": "))
}
