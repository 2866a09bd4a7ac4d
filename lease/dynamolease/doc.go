// Package dynamolease keeps a fleet's budgets in one DynamoDB table: how many
// connections may exist (Leases), and how fast they may be opened (Limiter).
// The protocol, and what holds when, is package fleet's; this package is its
// Store: one item per record, single-item conditional updates and consistent
// reads, no transactions.
//
// # One region
//
// A global table accepts conditional writes in each of its regions, and would
// grant the same leases in each. New and NewLimiter refuse a table that has
// replicas, unless it is of strong consistency. They can tell only where they
// may call dynamodb:DescribeTable.
//
// # Cost
//
// Each process reads one item of less than 1 KB every 0.15 Lease (9s), which is
// one read unit, and writes one item of about 1 KB when a round begins, one
// write unit: every 22s by default, in a fleet of more than 138 processes that
// is not short every 0.16s for each process. All together, for 10,000
// connections whose lives are about 12 minutes, at 0.625 dollars per million
// write units and 0.125 per million read units (simulated, make fleet):
//
//	processes   write units per life   read units per life   dollars per month
//	       50                   0.13                   0.8                   6
//	      300                   0.38                   3.2                  23
//	    1,000                   0.43                   8.7                  49
//
// While the fleet is short, rounds come every 22s: 1,000 processes then write 45
// units a second. The Limiter's writes come on top: 0.14 to 0.25 per open.
//
// # Permissions
//
// A running process needs no more than this; CreateTable needs
// dynamodb:CreateTable, DescribeTable, DescribeTimeToLive and UpdateTimeToLive
// beside, once.
//
//	{
//	  "Version": "2012-10-17",
//	  "Statement": [{
//	    "Effect": "Allow",
//	    "Action": ["dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:UpdateItem", "dynamodb:DescribeTable"],
//	    "Resource": "arn:aws:dynamodb:REGION:ACCOUNT:table/TABLE"
//	  }]
//	}
//
// It runs on DynamoDB itself and on stand-ins that do not return the old item
// with a failed condition: a consistent read takes its place.
package dynamolease
