package flightconn

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc/metadata"
)

// addCookies gives an RPC the cookies of the jar.
//
// INVARIANT: a cookie that names a session is a header of its own, as HTTP/2 allows, in front of the others. In the one line
// into which the jar puts them all, servers with the session middleware of Arrow's C++ or Java library do not find theirs
// beside another, such as a load balancer's, and serve the call without the session; and some servers look at the first
// header alone.
func (id *identity) addCookies(ctx context.Context) context.Context {
	ctx = id.cookies.StartCall(ctx)
	if !id.hasCookies.Load() {
		return ctx
	}
	md, _ := metadata.FromOutgoingContext(ctx) // a copy
	md.Set(cookieKey, separateCookies(md.Get(cookieKey))...)
	return metadata.NewOutgoingContext(ctx, md)
}

// separateCookies takes lines of cookies apart: one for each that names a session, and one for the others.
func separateCookies(lines []string) []string {
	var sessions, others []string
	for _, line := range lines {
		for pair := range strings.SplitSeq(line, ";") {
			pair = strings.TrimSpace(pair)
			switch name, _, _ := strings.Cut(pair, "="); {
			case pair == "":
			case namesSession(name):
				sessions = append(sessions, pair)
			default:
				others = append(others, pair)
			}
		}
	}
	slices.Sort(sessions)
	if len(others) > 0 {
		sessions = append(sessions, strings.Join(others, "; "))
	}
	return sessions
}

// namesSession reports whether a cookie names the session: if its name has the word in it, as those of
// the common servers do.
func namesSession(cookie string) bool { return strings.Contains(strings.ToLower(cookie), "session") }
