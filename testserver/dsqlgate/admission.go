package dsqlgate

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// refuse makes the message with which a connection is refused.
func refuse(code, message string) *pgproto3.ErrorResponse {
	return &pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: code, Message: message}
}

// The refusals, word for word.
var (
	errRate     = refuse("53400", "Unable to accept connection, rate exceeded.")
	errFull     = refuse("53300", "Unable to accept connection, too many open connections.")
	errAccess   = refuse("08006", "unable to accept connection, access denied")
	errNoSNI    = refuse("08006", "unable to accept connection, sni was not received")
	errNoTLS    = refuse("28000", "unable to accept connection, TLS is required")
	errDatabase = refuse("3D000", "unable to accept connection, only the database \"postgres\" exists")
)

// admission is the cluster's admission: the bucket of opens and the count of
// connections.
type admission struct {
	rate, burst  float64
	max          int
	refusalsCost bool

	mu     sync.Mutex
	tokens float64 // INVARIANT: what the bucket held at the time at; <= burst
	at     time.Time
	live   int // INVARIANT: admitted and not left; <= max
	peak   int
	times  []time.Time // of the admissions
}

func newAdmission(o Options) *admission {
	return &admission{rate: o.Rate, burst: float64(o.Burst), max: o.MaxConns, refusalsCost: o.RefusalsCost, tokens: float64(o.Burst), at: time.Now()}
}

// admit admits a connection or says why not.
func (d *admission) admit(now time.Time) *pgproto3.ErrorResponse {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.rate > 0 {
		d.tokens = min(d.burst, d.tokens+d.rate*now.Sub(d.at).Seconds())
		d.at = now
		if d.tokens < 1 {
			if d.refusalsCost {
				d.tokens = max(d.tokens-1, -d.burst)
			}
			return errRate
		}
		d.tokens--
	}
	if d.max >= 0 && d.live >= d.max {
		return errFull
	}
	d.live++
	d.peak = max(d.peak, d.live)
	d.times = append(d.times, now)
	return nil
}

// release ends the stay of a connection that was admitted.
func (d *admission) release() {
	d.mu.Lock()
	d.live--
	d.mu.Unlock()
}

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
