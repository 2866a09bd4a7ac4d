package session

import "testing"

// everywhere runs programs on servers with each of the faults at each round trip.
func everywhere(t *testing.T, faults []worldFault, on []string, names ...string) {
	for _, name := range names {
		for _, server := range on {
			for _, warm := range []bool{false, true} {
				sc := scene{program: name, server: server, warm: warm}
				_, trips := sc.perform(t)
				for at := 1; at <= trips; at++ {
					for _, f := range faults {
						sc.faults = map[int]worldFault{at: f}
						p, _ := sc.perform(t)
						report(t, sc, p)
					}
				}
			}
		}
	}
}

// The caller of an interceptor or driver that panics may go on with the session: it is where the
// caller believes it to be, and nothing of the call is left in it.
func TestAPanicAtAnyRoundTripLeavesTheSessionAsItWas(t *testing.T) {
	panics := []worldFault{{"panic", false}, {"panic", true}}
	everywhere(t, panics, []string{"moving", "plain"}, "bulk", "bulk in a transaction", "NoCancel")
}

// Some servers confirm the COMMIT of a transaction that a failed statement has aborted, and store
// nothing of it. The statements that watch over an INSERT with parameters are such, too.
func TestWhatFailsBehindAnInsertIsNotPassedOverByTheCommit(t *testing.T) {
	everywhere(t, worldFaults, []string{"confirming"}, "bulk in a transaction", "rows in a transaction")
}
