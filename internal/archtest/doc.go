// Package archtest keeps the shape of the project: which package may import
// which, how long functions and files may grow, and where a context may be
// detached from its caller. Its tests fail when a rule is broken.
//
// The rules are in rules.go. A new package needs a line there.
package archtest
