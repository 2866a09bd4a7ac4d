// Package cancel stops an operation on its server and says whether that
// worked.
//
// A Chain tries its Steps in order, each within its own time and all within
// the chain's. It ends at the first step that confirms the end of the
// operation, or when Chain.Ended closes. It is bounded even when a step ignores
// its context or panics. Its Report tells what every step achieved and how long
// it took.
//
// The one thing to read off a Report is Safe: a connection may be used again
// only when the operation is known to have ended and no request to stop it is
// still under way, since a late one could stop the next operation instead.
//
// The package knows nothing of databases. It uses the standard library only.
package cancel
