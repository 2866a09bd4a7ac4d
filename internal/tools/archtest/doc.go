// Package archtest keeps the shape of the project: which package may import
// which, how long functions and files may grow, and where a context may be
// detached from its caller. Its tests fail when a rule is broken.
//
// The rules are in rules.go; a new package needs a line there. Links of the
// documents, those that name tests above all, must lead somewhere: doclinks.go. So must the names in docs/DESIGN.md, whose map
// of packages is written from the imports: design.go. Names and words that were
// replaced do not come back: words.go, retired.txt.
package archtest
