package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// doctor runs flightpool doctor on the server, and compares its verdicts with
// what the other rows have found out in another way.
func (s *subject) doctor(ctx context.Context, cells column) (cell, string, error) {
	if s.p.authorization != "" {
		return works, "left out: the command sends no such header", nil
	}
	s.used = true // it tries what the server may not have
	out, err := command(ctx, s.cfg.flightpool, "doctor", "--json", "--slow", s.p.endless, s.p.dsn(s.server.addr)).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return "", "", err
	}
	var report struct {
		Findings []struct{ Subject, Verdict, Detail string }
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return "", "", err
	}
	var said, wrong []string
	allowed := verdicts(cells)
	for _, f := range report.Findings {
		said = append(said, f.Subject+" "+f.Verdict)
		spent := s.p.fragile && f.Verdict == "unknown" // by what it has refused until then
		if want, ok := allowed[f.Subject]; ok && !spent && !slices.Contains(want, f.Verdict) {
			wrong = append(wrong, fmt.Sprintf("%s: %s (%s), not one of %q", f.Subject, f.Verdict, f.Detail, want))
		}
		delete(allowed, f.Subject)
	}
	for subject := range allowed {
		wrong = append(wrong, subject+": nothing")
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		return "", "", errors.New(strings.Join(wrong, "; "))
	}
	return works, strings.Join(said, ", "), nil
}

// verdicts are those that the doctor may give of a server with these cells.
func verdicts(cells column) map[string][]string {
	v := map[string][]string{
		"parameters":   {"no"},
		"transactions": {"no", "unknown"},
		"ingestion":    {"no"},
		"cancel":       {"no", "unconfirmed"},
	}
	if cells[rowParams] == works {
		v["parameters"] = []string{"yes"}
	}
	if cells[rowCommit] == works {
		v["transactions"] = []string{"honest", "not honest"} // the doctor looks for more than the rows do
	}
	switch c := cells[rowIngestion]; {
	case c == works:
		v["ingestion"] = []string{"yes"}
	case strings.HasPrefix(string(c), "accepted"):
		v["ingestion"] = []string{"not honest"}
	}
	if cells[rowDeadline] == works {
		v["cancel"] = []string{"yes", "unconfirmed"} // where nothing but the server's processor time shows it
	}
	return v
}
