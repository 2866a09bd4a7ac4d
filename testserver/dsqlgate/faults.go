package dsqlgate

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/flightpool/flightpool/internal/backoff"
)

// faults are what tests asked for and has not happened yet.
type faults struct {
	refusals      []*pgproto3.ErrorResponse
	openDelay     time.Duration
	commitCodes   []string // codes
	dropsAtCommit int      // at COMMIT
	dropsAtAnswer int      // to drop the connection at
	cancelsToHold int      // requests to cancel that are held back
	heldCancels   int      // those that are, for the next statement
	revoked       map[string]bool
}

// DropAll closes every connection (FIN) and returns how many there were.
func (g *Gate) DropAll() int { return g.each((*session).drop) }

// ResetAll aborts every connection (RST).
func (g *Gate) ResetAll() int { return g.each((*session).reset) }

// FreezeAll makes every connection silent: it stays open and counts, nothing
// passes. DropAll ends it.
func (g *Gate) FreezeAll() int { return g.each(func(s *session) { s.freeze(false) }) }

// HalfOpenAll leaves every connection half-open: the server has forgotten it and
// counts it no more, the client is not told.
func (g *Gate) HalfOpenAll() int { return g.each(func(s *session) { s.freeze(true) }) }

func (g *Gate) each(f func(*session)) int {
	g.mu.Lock()
	all := make([]*session, 0, len(g.sessions))
	for s := range g.sessions {
		all = append(all, s)
	}
	g.mu.Unlock()
	for _, s := range all {
		f(s)
	}
	return len(all)
}

// Refuse refuses the next n opens with an SQLSTATE: 53300, 53400 or 08006 in
// DSQL's words.
func (g *Gate) Refuse(n int, code string) {
	why := refuse(code, "unable to accept connection")
	for _, known := range []*pgproto3.ErrorResponse{errRate, errFull, errAccess} {
		if known.Code == code {
			why = known
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for range n {
		g.faults.refusals = append(g.faults.refusals, why)
	}
}

// SlowHandshakes makes every open take that much longer; 0 ends it.
func (g *Gate) SlowHandshakes(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.faults.openDelay = d
}

// FailCommits fails the next n commits with a conflict, OC000 or OC001. The
// transactions are rolled back.
func (g *Gate) FailCommits(n int, code string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for range n {
		g.faults.commitCodes = append(g.faults.commitCodes, code)
	}
}

// DropAtCommit makes the next n commits, and drops their connections in the
// place of an answer.
func (g *Gate) DropAtCommit(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.faults.dropsAtCommit += n
}

// DropAtAnswer carries the next n simple queries out, whatever they are, and
// drops their connections in the place of an answer.
func (g *Gate) DropAtAnswer(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.faults.dropsAtAnswer += n
}

// DelayCancels answers the next n requests to cancel a statement and lets each hit
// the statement that comes next instead, whichever that is: a server that acts on a
// request some time after it has taken it.
func (g *Gate) DelayCancels(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.faults.cancelsToHold += n
}

// holdCancel counts a request to cancel, and says whether it is held back.
func (g *Gate) holdCancel() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stats.Cancels++
	if g.faults.cancelsToHold == 0 {
		return false
	}
	g.faults.cancelsToHold--
	g.faults.heldCancels++
	return true
}

// takeHeldCancel says whether a request that was held back hits the statement at hand.
func (g *Gate) takeHeldCancel() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.faults.heldCancels == 0 {
		return false
	}
	g.faults.heldCancels--
	return true
}

// Revoke makes an access key unknown. Connections it opened live on.
func (g *Gate) Revoke(accessKeyID string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.faults.revoked == nil {
		g.faults.revoked = map[string]bool{}
	}
	g.faults.revoked[accessKeyID] = true
}

func (g *Gate) revoked(accessKeyID string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.faults.revoked[accessKeyID]
}

func (g *Gate) takeRefusal() *pgproto3.ErrorResponse {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.faults.refusals) == 0 {
		return nil
	}
	why := g.faults.refusals[0]
	g.faults.refusals = g.faults.refusals[1:]
	return why
}

func (g *Gate) delayOpen(ctx context.Context) {
	g.mu.Lock()
	d := g.faults.openDelay
	g.mu.Unlock()
	_ = backoff.Sleep(ctx, d)
}

func (g *Gate) takeCommitFault() (code string, fails bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.faults.commitCodes) == 0 {
		return "", false
	}
	code = g.faults.commitCodes[0]
	g.faults.commitCodes = g.faults.commitCodes[1:]
	g.stats.Conflicts++
	return code, true
}

func (g *Gate) takeDropAtCommit() bool { return g.takeOne(&g.faults.dropsAtCommit) }

func (g *Gate) takeDropAtAnswer() bool { return g.takeOne(&g.faults.dropsAtAnswer) }

// takeOne takes one of a number of faults.
func (g *Gate) takeOne(left *int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if *left == 0 {
		return false
	}
	*left--
	return true
}
