package main

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// text is a view for people. Its shape depends on nothing but the view.
func (v *view) text() []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s at %s\n", printable(v.Source), v.Time.UTC().Format(time.RFC3339))
	if len(v.Budgets) == 0 {
		fmt.Fprintln(&out, "it has no budgets")
	}
	for i := range v.Budgets {
		fmt.Fprintln(&out)
		v.Budgets[i].text(&out)
	}
	return out.Bytes()
}

func (b *budgetView) text(out *bytes.Buffer) {
	fmt.Fprintf(out, "budget %s: %d of %d leases used, processes %d, ", printable(b.Budget), b.Used, b.Limit, len(b.Members))
	if b.Share != nil {
		fmt.Fprintf(out, "short: the share of each is %d, ", *b.Share)
	}
	if b.PermitsPerSecond != nil {
		fmt.Fprintf(out, "permits/s %.1f, ", *b.PermitsPerSecond)
	}
	fmt.Fprintf(out, "round %d\n", b.Round)
	if len(b.Members) == 0 {
		return
	}
	rows := [][]string{{"ID", "HOST", "PID", "SERVICE", "AGE", "LEASES", "WANT", "ROUND"}}
	for _, m := range b.Members {
		pid, age, want, round := "?", "?", "-", "current"
		if m.PID > 0 {
			pid = strconv.Itoa(m.PID)
		}
		if m.AgeSeconds != nil {
			age = short(time.Duration(*m.AgeSeconds * float64(time.Second)))
		}
		if m.Want > m.Leases {
			want = strconv.Itoa(m.Want)
		}
		if m.RoundsBehind > 0 {
			round = fmt.Sprintf("%d behind", m.RoundsBehind)
		}
		rows = append(rows, []string{printable(m.ID), orUnknown(m.Host), pid, orUnknown(m.Service), age, strconv.Itoa(m.Leases), want, round})
	}
	align(out, rows, 2, 4, 5, 6)
}

// align prints rows in columns, of which some are aligned to the right.
func align(out *bytes.Buffer, rows [][]string, right ...int) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	toRight := make([]bool, len(widths))
	for _, i := range right {
		toRight[i] = true
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i > 0 {
				line.WriteString("  ")
			}
			if toRight[i] {
				line.WriteString(space + cell)
			} else {
				line.WriteString(cell + space)
			}
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

func orUnknown(text string) string {
	return cmp.Or(printable(text), "?")
}

// printable keeps what was stored by others from controlling a terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

// short tells a duration by its two largest units.
func short(d time.Duration) string {
	d = d.Truncate(time.Second)
	days, hours, minutes, seconds := d/(24*time.Hour), d/time.Hour%24, d/time.Minute%60, d/time.Second%60
	switch {
	case days > 0:
		return fmt.Sprintf("%dd%02dh", days, hours)
	case hours > 0:
		return fmt.Sprintf("%dh%02dm", hours, minutes)
	case minutes > 0:
		return fmt.Sprintf("%dm%02ds", minutes, seconds)
	}
	return fmt.Sprintf("%ds", seconds)
}
