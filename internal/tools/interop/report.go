package main

import "fmt"

// A report prints each check as it ends and counts them.
type report struct{ checks, failed int }

func (r *report) heading(client, server string) { fmt.Printf("\n%s -> %s\n", client, server) }

// add tells how a check ended. A note says more: what was measured, or why.
func (r *report) add(name string, ok bool, note string) {
	r.checks++
	verdict := "ok  "
	if !ok {
		r.failed++
		verdict = "FAIL"
	}
	if note != "" {
		note = "  (" + note + ")"
	}
	fmt.Printf("  %s  %s%s\n", verdict, name, note)
}
