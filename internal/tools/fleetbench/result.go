package main

// A result is what a process, or a fleet, has seen.
type result struct {
	Requests, Failures int
	// Hung counts failures for no better reason than the end of the request's
	// patience.
	Hung int
	// Later counts failed requests that began well after the process's first
	// failure.
	Later int
	// Requests' and checkouts' durations, in microseconds.
	Request, Checkout []int
	// Ready is the lowest number of usable connections after Settle.
	Ready int

	Opens           uint64
	Writes          uint64 // to DynamoDB, for the limiter
	Dropped, Elided uint64 // permits that came too late, and for nobody
	LeaseWrites     uint64 // to DynamoDB, for the leases
	Losses, Reaped  uint64 // as lease.Stats has them
	CloseFailed     bool
}

func (r *result) add(o result) {
	if len(r.Request) == 0 {
		r.Ready = o.Ready
	}
	r.Ready = min(r.Ready, o.Ready)
	r.Requests, r.Failures = r.Requests+o.Requests, r.Failures+o.Failures
	r.Hung, r.Later = r.Hung+o.Hung, r.Later+o.Later
	r.Request, r.Checkout = append(r.Request, o.Request...), append(r.Checkout, o.Checkout...)
	r.Writes, r.Opens = r.Writes+o.Writes, r.Opens+o.Opens
	r.Dropped, r.Elided = r.Dropped+o.Dropped, r.Elided+o.Elided
	r.LeaseWrites, r.Losses, r.Reaped = r.LeaseWrites+o.LeaseWrites, r.Losses+o.Losses, r.Reaped+o.Reaped
	r.CloseFailed = r.CloseFailed || o.CloseFailed
}
