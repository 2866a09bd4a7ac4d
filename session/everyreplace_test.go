package session

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/flightpool/flightpool/backend"
)

// provenFrom is the round trip with which the handle has a proof of its session, or 0.
func (w *world) provenFrom() int {
	for i, trip := range w.log {
		if strings.HasPrefix(trip, "Prepare") && nonce.MatchString(trip) {
			return i + 1
		}
	}
	return 0
}

// lastProof is the round trip with which the last proof before another was asked for.
func (w *world) lastProof(trip int) int {
	for at := trip - 1; at > 0; at-- {
		if nonce.MatchString(w.log[at-1]) {
			return at
		}
	}
	return 0
}

// wasReplacedIn reports whether a session was replaced from a round trip on, before another one.
func (w *world) wasReplacedIn(from, until int) bool {
	for at := range w.replacedBefore {
		if at > from && at <= until {
			return true
		}
	}
	return false
}

// countReplaced is count where the server has replaced the session before some round trips.
func (p *play) countReplaced(reason error) {
	w := p.w
	p.countLoose()
	for _, tx := range p.txs {
		if !w.bare {
			p.countTx(tx)
		}
	}
	for _, text := range w.mistaken {
		p.wrong("the server has run %s", text)
	}
	if w.bare { // which can prove nothing: see Commit
		return
	}
	if n := w.stored[9999]; n > 0 {
		p.wrong("a statement that was prepared and not run is stored %d times", n)
	}
	proven := w.provenFrom()
	until := w.unproven
	if until == 0 {
		until = w.trips
	}
	told := reason != nil
	for _, err := range p.errs {
		told = told || errors.Is(err, backend.ErrSessionLost)
	}
	if proven > 0 && w.wasReplacedIn(proven, until) && !told {
		p.wrong("what was in the session is gone, and nobody was told: %v", p.errs)
	}
	for v, place := range p.placed {
		at, ran := w.ran[v]
		if !ran || w.places[v] == place || proven == 0 || !w.forgives {
			continue
		}
		if !w.wasReplacedIn(w.lastProof(at.trip), at.trip) {
			p.wrong("%d was stored at %s, and the caller believed to be at %s", v, w.places[v], place)
		}
	}
	if w.bulkMoves {
		for _, q := range []string{"bulk.", "."} {
			if p.policy.nonMovingInserts.has(q) {
				p.wrong("learned that INSERTs of %q leave the session where it is", q)
			}
		}
	}
}

func (p *play) countLoose() {
	for _, v := range p.loose {
		if v.value <= 0 {
			continue
		}
		n := p.w.stored[v.value]
		switch {
		case v.err == nil && n != 1:
			p.wrong("%d is stored %d times, and its call succeeded", v.value, n)
		case v.err != nil && backend.SafeToRetry(v.err) && n != 0:
			p.wrong("%d is stored, and its call may be repeated: %v", v.value, v.err)
		case v.err != nil && backend.FaultIn(v.err) == backend.FaultStatement && !errors.Is(v.err, backend.ErrSessionLost) && n != 0:
			p.wrong("%d is stored, and the server refused it: %v", v.value, v.err)
		case n > 1:
			p.wrong("%d is stored %d times", v.value, n)
		}
	}
}

// countTx looks at what is stored of a transaction.
func (p *play) countTx(tx *txSaid) {
	committed := tx.end == "Commit" && tx.err == nil
	unknown := tx.end == "" || errors.Is(tx.err, backend.ErrCommitUnknown)
	trips := map[int]bool{}
	for _, v := range tx.values {
		n, sent := p.w.stored[v.value], true
		var e *backend.Error
		if errors.As(v.err, &e) {
			sent = !e.Unsent && e.Fault != backend.FaultUnsupported
		}
		if n > 0 {
			trips[p.w.ran[v.value].trip] = true
		}
		switch {
		case v.value <= 0:
			if committed && v.err != nil && sent {
				p.wrong("committed although a call had failed: %v", v.err)
			}
		case n > 1:
			p.wrong("%d is stored %d times", v.value, n)
		case n > 0 && v.err != nil && backend.SafeToRetry(v.err):
			p.wrong("%d is stored, and its call may be repeated: %v", v.value, v.err)
		case v.undone:
			if n != 0 && !unknown && !errors.Is(tx.err, backend.ErrSessionLost) {
				p.wrong("%d is stored, and it was rolled back to a savepoint: %v", v.value, tx.err)
			}
		case committed && v.err == nil && n != 1:
			p.wrong("%d is not stored, and it was committed", v.value)
		case committed && v.err != nil && sent:
			p.wrong("committed although a call had failed: %v", v.err)
		case committed || unknown || n == 0:
		case tx.err == nil:
			p.wrong("%d is stored, and it was rolled back", v.value)
		case backend.SafeToRetry(tx.err):
			p.wrong("%d is stored, and its transaction may be repeated: %v", v.value, tx.err)
		case !errors.Is(tx.err, backend.ErrSessionLost) && !p.w.bare:
			p.wrong("%d is stored, and its transaction ended in %v", v.value, tx.err)
		}
	}
	if !committed && !unknown && len(trips) > 1 {
		p.wrong("%d calls of the transaction are stored, which ended in %v", len(trips), tx.err)
	}
}

// Whichever round trip is the first that comes to another session, which the server has put in the
// place of the handle's without a word: COMMIT succeeds only where all of its transaction is stored,
// no error says that nothing is stored, or that the call may be repeated, where something is, no
// handle runs the statement of another, and what the session has lost is told. Those with a number of
// PROVE_SEED are tried, beginning with which is said there; beside them two replacements, and one
// with a failure.
func TestASessionMayBeReplacedBeforeAnyRoundTrip(t *testing.T) {
	turn, _ := strconv.Atoi(os.Getenv("PROVE_SEED"))
	kinds := slices.Sorted(maps.Keys(servers))
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		for _, server := range kinds {
			whole := scene{program: name, server: server, warm: turn%2 == 0}
			_, trips := whole.perform(t)
			for at := 1; at <= trips; at++ {
				if turn++; turn%replacedOfAll != 0 {
					continue
				}
				sc := whole
				sc.replacedBefore, sc.counts = []int{at}, turn%4 != 0
				p, _ := sc.perform(t)
				report(t, sc, p)
				next := at + turn%5
				switch turn / replacedOfAll % 3 {
				case 0:
					sc.replacedBefore = append(sc.replacedBefore, next+1)
				case 1:
					sc.faults = map[int]worldFault{next: worldFaults[turn%len(worldFaults)]}
				default:
					continue
				}
				p, _ = sc.perform(t)
				report(t, sc, p)
			}
		}
	}
}

// replacedOfAll is of how many places one is tried.
const replacedOfAll = 11
