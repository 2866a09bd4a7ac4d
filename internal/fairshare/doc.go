// Package fairshare divides the connections of one server among its users, who each
// have a pool of their own: who is granted an open, who gives up what, and when.
//
// A Share has the server's bounds, and a Member is one user's part of it. The share
// learns demand from what the pools tell it: an open asks for a slot with Admit first
// and keeps it until the connection is closed, and callers who wait are counted with
// AddWaiting. While slots are free it grants them to the user with the fewest
// connections, those whose callers wait first. When none is, it asks pools to give
// connections up until the division is max-min fair; the table before policies says
// which.
//
// The lock is held for arithmetic alone, for a time that does not grow with users,
// connections or tickets but by the logarithm: members are kept in rankings and lists,
// and what is counted over all of them in sum. Pools are called by one goroutine at a
// time, without the lock; they may call back.
//
//	share     the bounds, and what the server does to them
//	member    a user's part: admission, and what a pool tells
//	dispatch  who gets a free slot; the passes over the policies
//	reclaim   who gives up what, and when
//	overdue   what is not given up in time
//	account   what is known of members; ranking keeps their order
package fairshare
