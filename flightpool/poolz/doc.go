// Package poolz is a page that shows operators what pools do, live: connections, callers
// who wait, opens, percentiles of waits, cancels, closes by reason, budgets, who has which
// connection, slow calls and recent events. The same is there as JSON.
//
//	page := poolz.New(poolz.Config{})
//	defer page.Close()
//	pool, err := flightpool.New(ctx, target, flightpool.Config{Tracer: page.Tracer("warehouse")})
//	page.Add("warehouse", pool)
//	mux.Handle("/debug/poolz/", page) // of a server on 127.0.0.1
//
// The page is at the path that ends in a slash, the JSON beside it at state.json, with the
// parameters source (whose details), range (5m or 1h) and rows (how many connections).
//
// # What it needs
//
// The numbers come from Stats and need Add only. Slow calls, and what a connection is
// used for, come from the tracer; without one the page says that it is missing. A registry
// has Page.RegistryTracer as its Config.Tracer: its calls are told by server and user. Where LeakAfter is set, a borrowed connection
// shows who has borrowed it: functions, files without their folders, and lines.
//
// # What it costs
//
// One goroutine reads Stats once a second, for the last five minutes by seconds and the
// last hour by ten seconds: the page that is opened after something has happened shows it.
// A source, which is a pool or a server of a registry, takes 50 KB for that, and no more than
// 256 sources have a history. 200 slow calls and 200 events are kept, and for each connection its
// latest call: at most 20,000 of all pools, with texts of 4 KB. The tracer adds to a call what it
// takes to find its summary, and next to nothing where the same text came lately. The list of
// connections is read 64 at a time, so that it delays no borrower, and only while somebody
// looks. With 1,000 servers of ten users and 10,000 connections the goroutine takes 3% of a
// core, and a look 40 ms and 370 KB (BenchmarkAThousandServers).
//
// # Who sees what
//
// The page only reads. It answers requests from this machine alone, by a name or address of
// it, and not through a proxy that says so in a header; others, and tunnels, look like a
// browser here. With Config.AllowRemote it answers everybody: put your own
// authentication around it. No other site can frame it or read it. It shows no
// credentials and no target but host and port. Of statements it shows verbs and tables, of
// errors fault, stage and SQLSTATE; Config.Texts shows and keeps their texts, which may hold values
// and secrets. The names of pools, servers and users are shown as they are.
package poolz
