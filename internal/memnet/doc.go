// Package memnet makes network connections that tests control: in memory, so
// that a client and a server run inside one testing/synctest bubble, or over a
// real listener. Each accepted connection can be cut (as a reset does) and
// frozen (as a black hole does), and is counted while it is open.
//
// No goroutine is started: blocked reads and writes wait on condition
// variables, which a bubble's clock understands, and end with Close.
package memnet
