package dsqlgate

import (
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
