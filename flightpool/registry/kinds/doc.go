// Package kinds has the kinds of server for package registry that need more than
// the standard library and gRPC: who does not use them does not compile them.
//
//	r, err := registry.NewWith(registry.Config{Kinds: []registry.Kind{
//		kinds.PostgreSQL(), kinds.ADBC(), kinds.DSQL(dsql.Config{}),
//	}})
//
// PostgreSQL is the built-in postgresql, by the pgx that is compiled in, and with
// its bytes counted. ADBC is flightsql with its statements through ADBC's Flight SQL
// driver. DSQL is Aurora DSQL by package dsql: tokens, rate limits and the fleet's budgets
// are its own, how many connections there are is the registry's.
package kinds
