package flightconn

import (
	"context"
	"net/http"
	"strings"
	"testing"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// How the session middleware of Arrow's libraries, and servers that look at one header alone, find a cookie.
var cookieReaders = map[string]func(lines []string, name string) string{
	"C++": func(lines []string, name string) string {
		for _, line := range lines {
			for pair := range strings.SplitSeq(line, "; ") {
				if key, value, _ := strings.Cut(pair, "="); key == name {
					return value
				}
			}
		}
		return ""
	},
	"Java": func(lines []string, name string) string {
		for _, line := range lines {
			for pair := range strings.SplitSeq(line, " ;") {
				parts := strings.Split(pair, "=")
				if len(parts) != 2 {
					break
				}
				if parts[0] == name {
					return parts[1]
				}
			}
		}
		return ""
	},
	"Go":               goCookie,
	"the first header": func(lines []string, name string) string { return goCookie(lines[:1], name) },
}

func goCookie(lines []string, name string) string {
	found, err := (&http.Request{Header: http.Header{"Cookie": lines}}).Cookie(name)
	if err != nil {
		return ""
	}
	return found.Value
}

// A load balancer gives the connection cookies of its own.
func TestEveryServerFindsItsSessionBesideOtherCookies(t *testing.T) {
	const name = "arrow_flight_session_id"
	var lines []string
	f := &fake{info: func(ctx context.Context, _ *pb.FlightDescriptor) (*pb.FlightInfo, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		lines = md.Get("cookie")
		_ = grpc.SetHeader(ctx, metadata.Pairs("set-cookie", "AWSALB=Zm9v+/=; Path=/", "set-cookie", name+"=s-1", "set-cookie", "route=b"))
		return nil, status.Error(codes.NotFound, "nothing here")
	}}
	inBubble(t, f, func(b *bubble) {
		c := b.open()
		for range 20 { // the jar gives them in any order
			require.NoError(b, c.Ping(b.Context()))
			for language, find := range cookieReaders {
				require.Equal(b, "s-1", find(lines, name), "%s: %q", language, lines)
			}
			require.Equal(b, "Zm9v+/=", goCookie(lines, "AWSALB"), "%q", lines)
			require.Equal(b, "b", goCookie(lines, "route"), "%q", lines)
		}
		require.NoError(b, c.Lost())
	})
}

func TestCookiesThatNameASessionAreHeadersOfTheirOwn(t *testing.T) {
	for line, want := range map[string][]string{
		"":                           nil,
		"a=1":                        {"a=1"},
		"a=1;b=2":                    {"a=1; b=2"},
		"SESSION_ID=x":               {"SESSION_ID=x"},
		"a=1;SESSION_ID=x;b=2":       {"SESSION_ID=x", "a=1; b=2"},
		"zsession=1; a=2;JSESSION=3": {"JSESSION=3", "zsession=1", "a=2"},
	} {
		require.Equal(t, want, separateCookies([]string{line}), line)
	}
}
