package dsqlgate

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Stats counts what a gateway has done.
type Stats struct {
	// Attempts counts connections accepted by TCP.
	Attempts int
	// Admitted counts opens that succeeded.
	Admitted int
	// Refused counts those that did not, by SQLSTATE (53300, 53400, 08006) or
	// by "sni", "tls", "plaintext", "database", "injected" and "upstream".
	Refused map[string]int
	// Live counts the connections that exist, Peak the most that ever did.
	Live, Peak int
	// Sockets counts the admitted connections whose end has not reached the
	// network, half-open ones among them.
	Sockets int
	// Expired counts connections ended by the session limit.
	Expired int
	// Cancels counts requests to cancel a query.
	Cancels int
	// Conflicts counts commits failed by FailCommits.
	Conflicts int
	// LastDenial is why the latest token was refused: DSQL does not tell its
	// clients.
	LastDenial string
}

// Stats is a snapshot.
func (g *Gate) Stats() Stats {
	g.mu.Lock()
	s := g.stats
	s.Refused = maps.Clone(s.Refused)
	s.Sockets = len(g.sessions)
	g.mu.Unlock()
	g.admission.mu.Lock()
	defer g.admission.mu.Unlock()
	s.Live, s.Peak = g.admission.live, g.admission.peak
	return s
}

// Admissions returns when each open passed the bucket and the connection limit.
func (g *Gate) Admissions() []time.Time {
	g.admission.mu.Lock()
	defer g.admission.mu.Unlock()
	return slices.Clone(g.admission.times)
}

func (g *Gate) count(what string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if what == "expired" {
		g.stats.Expired++
		return
	}
	g.stats.Refused[what]++
}

func (g *Gate) recordDenial(user string, why error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stats.LastDenial = fmt.Sprintf("user %q: %v", user, why)
}
