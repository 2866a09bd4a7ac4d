package sqlconn

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/flightpool/flightpool/internal/badconn"
)

// Broken reports whether err says that the connection, or the way to the
// server, is gone. An error that the server itself sent in answer to a statement
// does not, unless it announces its end; nor does the end of a context.
func Broken(err error) bool {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return brokenState(state.SQLState())
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	if badconn.Hidden(err) {
		return true
	}
	for _, gone := range []error{driver.ErrBadConn, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, gone) {
			return true
		}
	}
	var netErr net.Error
	return errors.As(err, &netErr)
}

// Unreachable reports whether err, from Open or Check, tells that the server
// could not be reached: Broken, or no answer within the time for it.
func Unreachable(err error) bool {
	return Broken(err) || errors.Is(err, context.DeadlineExceeded)
}

// brokenState knows class 08, connection exception, and PostgreSQL's
// announcements that the server goes down or has not come up.
func brokenState(state string) bool {
	switch state {
	case "57P01", "57P02", "57P03", "57P05":
		return true
	}
	return strings.HasPrefix(state, "08")
}
