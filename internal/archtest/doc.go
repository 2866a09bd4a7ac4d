// Package archtest keeps the shape of the project: which package may import
// which, how long functions and files may grow, and where a context may be
// detached from its caller. Its tests fail when a rule is broken.
//
// The rules are in rules.go; a new package needs a line there. Links of the
// documents, those that name tests above all, must lead somewhere: doclinks.go.
package archtest
