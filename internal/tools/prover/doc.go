// Package prover looks for broken promises of package flightpool: it runs
// random programs of sessions, transactions and faults in virtual time against
// every profile of package testserver, and holds what the calls reported
// against what the server's database and ledger say.
//
// # A program
//
// A Program is a profile, a configuration and a list of steps, which one
// goroutine carries out in turn; its text is one line for each. Steps of an
// actor (a, b, c) use the session that it has acquired, the others the pool:
//
//	profile swanlake
//	auth none
//	max 2
//	a acquire
//	a begin
//	a insert 7 within 3s
//	sleep 16m
//	fault kill EndTransaction after
//	a commit
//	look
//
// With a line such as "onconnect plain" Config.OnConnect prepares each session, and what
// is run in any other breaks a promise.
//
// With "onreturn discard", "onreturn none" or "onreturn sql" Config.OnReturn is ResetDiscard, ResetNone or a ResetSQL that
// undoes what "set", "use" and "temp" do.
//
// A step may say last how its call is made: "within 3s" or "cut 3s" of its context, "caused NAME" if the cause of the
// context's end is what another call has failed with, "timeout 3s", "kept" (NoCancel) and "headed" of its QueryOptions.
//
// With a line such as "statements 2" Config.StatementCache keeps so many, which "find K" uses.
//
// With "users 2" actor c has a pool of its own on the same server, as the users of a registry have.
// "setall", "setown", "resetall" and "resetown" change a setting of the whole server, or a session's
// own value of it; where nothing goes wrong it is at the end what its operator has set, and no
// session sees the own value of another.
//
// With "auth token" a source gives tokens that end. "source fail|slow|short|well" says how it does on its
// next calls; "renew well|gone" has the server's next reply bring another token, with which the others may be gone.
//
// With "backend open" or "backend new" the pool is that of adbcpool.Open or New, of whose
// driver it is known that it dials again by itself; with "backend grpc" gRPC's own client is the
// transport of flightpool.New's. "redial SKIP" has the driver behind "backend new" do so right
// before its next RPC but SKIP, with no word to its calls.
//
// A step "answer CODE POINT before|after SKIP TIMES TEXT" has the RPC of that name,
// or any, answered with a status in place of the server's own answer, before the
// server has heard of it or when it is through with it. "answers off" ends that:
// sessions acquired later must find nothing wrong. With CODE OK it is the server's own
// answer, or its work, that comes later, by the time that stands in place of TEXT.
//
// An "alter" is run by the server as several statements, with a pause between them, and what is cut there
// leaves a transaction open in its session; so does what a "limit" of the server's ends there. A "prealter" prepares
// such a text and runs it. "rows" reads as QueryRow, CollectOneRow, CollectRows or a loop do
// that is left early; "twin" makes two calls at once on one handle; "save", "back" and "free" are of savepoints
// by name; "each" changes a row for each of its parameters, with a pause before each; "create", "replace" and "fill" are loads into a table that is new, replaced or temporary.
//
// Each row that is to be stored has a number of its own. At the end it must be
// in the table once, not at all, or either, as the calls have told; and whoever looks sees what was told
// as stored before.
//
// "refuse RPC before|after SKIP" has an HTTP/2 stream refused, before the server has heard of it or in place of its answer.
//
// "recover" ends what goes wrong and gives the pool some time: a new session must find nothing wrong then.
//
// # Use
//
//	go test ./internal/tools/prover                       # what testdata holds, and some random programs
//	PROVE=10m go test -v -run TestProveSessions ./internal/tools/prover
//	PROVE=10000x PROVE_PROFILE=swanlake go test -v -run TestProveSessions ./internal/tools/prover
//	PROVE=10m PROVE_BACKEND=new go test -run TestProveSessions ./internal/tools/prover
//	PROVE_SEED=7 go test -run TestProveSessions ./internal/tools/prover   # from this seed on
//
//	PROVE=10m PROVE_SEED=7 go test -timeout 0 -run TestRandomUsesOfTransactions ./internal/tools/prover # of Tx and InTx
//	PROVE=1 go test -v -timeout 0 -run TestWhatAnAnswerMeans ./internal/tools/prover # every status, at every RPC: an hour of one processor
//	PROVE=1 PROVE_ANSWERS=late go test -v -timeout 0 -run TestWhatAnAnswerMeans ./internal/tools/prover # every RPC cut because it is late
//
// With PROVE the programs are shared by processes, one for each processor.
// PROVE_TRACE=1 with -v tells what each call said and what the engine was given;
// PROVE_SKIP="bulk run" leaves out verbs.
//
// A program that breaks a promise is printed with its seed, and then again
// without the steps that it can do without. Put that into testdata.
package prover
