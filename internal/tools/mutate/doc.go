// Package mutate measures how much the tests of a package notice: it changes
// one place of the package at a time and runs the tests, which should fail.
//
// All mutants of a package are compiled into one test binary. Each place that
// can be changed asks a function, mutant(id), whether it is the one to behave
// differently, and an environment variable says which one is. So a mutant costs
// a run of the tests that reach it, not a build: that is why this is no kept
// tool, all of which build once a mutant.
//
// The kinds of change are: a comparison is negated or moves its boundary, an
// operand of && or || is dropped, a condition or returned bool is negated,
// + and - or * and / are swapped, a returned error becomes nil, and a statement
// (a call, an assignment, a send, go, defer, a bare return, break, continue) is
// left out. Constants, statements under an invariant check, and functions and files
// that are there for such checks, stay as they are.
//
// Where the package's own tests notice nothing, those of packages that call it may be asked:
// they are built with the same mutants.
//
// A mutant is killed when a test fails, panics, or takes much more processor
// time than it did. Survivors that no test can kill, because they change
// nothing that can be observed, are listed with the reason in explained.txt.
package mutate
