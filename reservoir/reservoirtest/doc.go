// Package reservoirtest proves that a reservoir works with real connections.
//
// A target's test calls Exercise with the functions that it would give to
// reservoir.Config. The suite opens real connections, breaks them, gives up in
// the middle of things and closes under load, and holds the reservoir's account
// against the number of connections that the server itself counts.
package reservoirtest
