package main

import (
	"fmt"
	"os"
	"strings"
)

// A plotted work is what each peer took of it, in parts of what arrow-go's client took.
type plotted struct {
	work  string
	parts map[string]float64 // by peer
}

// shown are the peers that are plotted, and how.
var shown = []struct{ peer, label, colour string }{
	{"flightpool", "flightpool", "#0b5fa5"},
	{"adbc", "ADBC", "#c2410c"},
	{"grpc_bytes", "gRPC, nobody looks at the bytes", "#9ca3af"},
	{"tcp_bytes", "TCP, one buffer", "#d1d5db"},
}

// plot draws a bar for each peer and work.
func plot(works []plotted) string {
	const left, width, bar, gap, top, most = 150, 720, 12, 14, 80, 2.0
	var b strings.Builder
	text := func(x, y int, anchor, s string) {
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, s)
	}
	x := func(part float64) int { return left + int(min(part, most)/most*(width-left-60)) }
	y := top
	for _, w := range works {
		if len(w.parts) == 0 {
			continue
		}
		text(left-8, y+bar, "end", w.work)
		for _, p := range shown {
			part, measured := w.parts[p.peer]
			if !measured {
				continue
			}
			fmt.Fprintf(&b, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\"/>\n", left, y, x(part)-left, bar, p.colour)
			text(x(part)+4, y+bar-2, "start", fmt.Sprintf("%.2f", part))
			y += bar + 2
		}
		y += gap
	}
	fmt.Fprintf(&b, "<path d=\"M%d %dV%d\" stroke=\"#333\" stroke-dasharray=\"4 3\"/>\n", x(1), top-8, y)
	text(x(1), top-12, "middle", "arrow-go's client")
	at := left
	for _, p := range shown {
		fmt.Fprintf(&b, "<rect x=\"%d\" y=\"38\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", at, p.colour)
		text(at+16, 48, "start", p.label)
		at += 40 + 7*len(p.label)
	}
	const title = "Time of a call or a batch, in parts of what arrow-go's client takes"
	return fmt.Sprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"11\">\n<title>%s</title>\n"+
		"<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n<text x=\"12\" y=\"24\" font-size=\"15\">%s</text>\n%s</svg>\n", width, y+10, title, width, y+10, title, b.String())
}

// writePlot writes what was measured against arrow-go's client.
func writePlot(path string, works []plotted) {
	if path != "" {
		must(os.WriteFile(path, []byte(plot(works)), 0o644)) //nolint:gosec // a picture
	}
}
