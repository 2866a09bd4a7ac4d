// Command fleetbench measures a fleet of processes on one stand-in of an Aurora
// DSQL cluster: this project's pool with its fleet-wide budgets in DynamoDB, and
// beside it pgxpool as it is and with the settings of AWS's Go connector (a
// stand-in for the connector, which configures a pgxpool: see peers.go).
//
//	fleetbench burst    all processes want all their connections at once, and
//	                    replace them faster than the cluster admits
//	fleetbench steady   every connection expires several times under load
//	fleetbench drop     the cluster drops every connection at once
//	fleetbench chaos    members are killed and paused, DynamoDB misbehaves
//
// It prints what it saw, tells which of the project's claims did not hold, and
// fails then. FLEET_SECONDS is the length of each story (burst 60, steady 120,
// drop 15, chaos 300), FLEET_PROCESSES the size of each fleet (8), FLEET_POOLS
// chooses the pools (dsql,pgxpool,aws-settings). Of stories that are shorter than
// that the limits and counts are judged alone, not the figures. The test tells
// all stories briefly.
//
// # Files
//
//	main.go, report.go       the stories and their claims
//	burst.go, steady.go, drop.go, chaos.go
//	field.go                 the servers, and the processes as their parent sees them
//	member.go, result.go     one process and what it tells
//	ours.go, peers.go        the pools
package main
