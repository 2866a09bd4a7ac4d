package flightconn

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/metadata"
)

// transportHeaders are gRPC's and HTTP's own. gRPC drops most of them without
// a word; the others break the transport.
var transportHeaders = []string{"connection", "content-type", "host", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade", "user-agent"}

// CheckHeaders finds the headers that cannot be sent: gRPC would drop them, or
// fail the call, or the transport, with words about itself. Upper case is as
// good as lower.
func CheckHeaders(headers metadata.MD) error {
	var errs []error
	for name, values := range headers {
		lower := strings.ToLower(name)
		switch {
		case lower == "" || strings.Trim(lower, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "":
			errs = append(errs, fmt.Errorf("%q is no header name: letters, digits and - _ . make one", name))
		case strings.HasPrefix(lower, "grpc-") || slices.Contains(transportHeaders, lower):
			errs = append(errs, fmt.Errorf("%q is reserved by gRPC and HTTP", name))
		}
		if strings.HasSuffix(lower, "-bin") {
			continue // any bytes
		}
		for _, value := range values {
			if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
				errs = append(errs, fmt.Errorf("the value of %q has characters that are not printable ASCII; name it %s-bin to send any bytes", name, lower))
				break
			}
		}
	}
	return errors.Join(errs...)
}
