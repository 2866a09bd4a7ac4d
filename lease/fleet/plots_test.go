package fleet

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// line is one line of a plot: y by fleet size.
type line struct {
	name   string
	points [][2]float64
}

// plot draws lines over fleet sizes, which are on a logarithmic axis.
func plot(title, unit string, lines []line) string {
	const width, height, left, right, top, bottom = 720, 400, 70, 190, 50, 60
	colours := []string{"#0b5fa5", "#c2410c", "#15803d", "#7e22ce"}
	most, first, last := 0.0, math.Inf(1), 0.0
	ticks := map[float64]bool{}
	for _, l := range lines {
		for _, p := range l.points {
			most, first, last = max(most, p[1]), min(first, p[0]), max(last, p[0])
			ticks[p[0]] = true
		}
	}
	step := math.Pow(10, math.Floor(math.Log10(max(most, 1e-3))))
	for _, part := range []float64{0.2, 0.5, 1} {
		if most/(step*part) <= 6 {
			step *= part
			break
		}
	}
	roof := step * max(math.Ceil(most/step), 1)
	x := func(n float64) float64 {
		return left + (width-left-right)*math.Log(n/first)/math.Log(last/first)
	}
	y := func(v float64) float64 { return height - bottom - (height-top-bottom)*v/roof }
	var b strings.Builder
	text := func(x, y float64, anchor, s string) {
		fmt.Fprintf(&b, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, s)
	}
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n", width, height)
	fmt.Fprintf(&b, "<title>%s</title>\n<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n", title, width, height)
	fmt.Fprintf(&b, "<text x=\"%d\" y=\"24\" font-size=\"15\">%s</text>\n", left, title)
	text(left, 42, "start", unit)
	text((left+width-right)/2, height-16, "middle", "processes (logarithmic)")
	for v := 0.0; v <= roof*1.001; v += step {
		fmt.Fprintf(&b, "<path d=\"M%d %.1fH%d\" stroke=\"#ddd\"/>\n", left, y(v), width-right)
		text(left-8, y(v)+4, "end", fmt.Sprintf("%.4g", v))
	}
	for _, n := range sizesOf(ticks) {
		fmt.Fprintf(&b, "<path d=\"M%.1f %dv5\" stroke=\"#333\"/>\n", x(n), height-bottom)
		text(x(n), height-bottom+20, "middle", fmt.Sprintf("%.0f", n))
	}
	for i, l := range lines {
		var path []string
		for _, p := range l.points {
			path = append(path, fmt.Sprintf("%.1f,%.1f", x(p[0]), y(p[1])))
			fmt.Fprintf(&b, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", x(p[0]), y(p[1]), colours[i])
		}
		fmt.Fprintf(&b, "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>\n", strings.Join(path, " "), colours[i])
		at := float64(top + 10 + 22*i)
		fmt.Fprintf(&b, "<path d=\"M%d %.1fh22\" stroke=\"%s\" stroke-width=\"2\"/>\n", width-right+10, at, colours[i])
		text(width-right+38, at+4, "start", l.name)
	}
	return b.String() + "</svg>\n"
}

func sizesOf(ticks map[float64]bool) (sizes []float64) {
	for n := 1.0; len(sizes) < len(ticks); n++ {
		if ticks[n] {
			sizes = append(sizes, n)
		}
	}
	return sizes
}

// The plots of docs are drawn anew with FLEET_PLOTS=../../docs: some minutes.
// Without it one is drawn of few points, to see that it is drawn.
func TestPlots(t *testing.T) {
	folder := os.Getenv("FLEET_PLOTS")
	write := func(t *testing.T, to, name, title, unit string, lines ...line) {
		svg := plot(title, unit, lines)
		require.NotContains(t, svg, "NaN")
		require.NoError(t, os.WriteFile(filepath.Join(to, name), []byte(svg), 0o600))
	}
	recovery := func(t *testing.T, to string, sizes ...int) {
		wanted, idle := line{name: "while others wait"}, line{name: "while nobody waits"}
		for _, n := range sizes {
			killed := max(n*9/10, 1)
			wanted.points = append(wanted.points, [2]float64{float64(n), massKill(t, n, killed, true).Seconds()})
			idle.points = append(idle.points, [2]float64{float64(n), massKill(t, n, killed, false).Seconds()})
		}
		write(t, to, "fleet-recovery.svg", "Leases of nine in ten that die together are free again (simulated)",
			"seconds; Lease + Grace is 80", wanted, idle)
	}
	if folder == "" {
		recovery(t, t.TempDir(), 2, 5)
		return
	}
	t.Run("recovery", func(t *testing.T) { recovery(t, folder, 2, 5, 10, 20, 50, 100, 300, 1000) })
	t.Run("cost", func(t *testing.T) {
		writes, reads := line{name: "write units"}, line{name: "read units"}
		for _, n := range []int{50, 100, 300, 1000} {
			wru, rru := cost(t, n, 10_000/n, 26*time.Minute)
			writes.points = append(writes.points, [2]float64{float64(n), wru})
			reads.points = append(reads.points, [2]float64{float64(n), rru})
		}
		write(t, folder, "fleet-cost.svg", "Cost of one connection life, 10,000 connections of 12 minutes (simulated)",
			"DynamoDB units per life", writes, reads)
	})
	t.Run("overshoot", func(t *testing.T) {
		strict, lenient := line{name: "Strict"}, line{name: "not Strict"}
		for _, n := range []int{2, 5, 10, 20} {
			for _, mode := range []*line{&strict, &lenient} {
				over := 0
				for seed := range uint64(5) {
					s := everything()
					s.members, s.limit, s.strict = n, 6*n, mode == &strict
					over = max(over, s.run(t, seed).server-s.limit)
				}
				mode.points = append(mode.points, [2]float64{float64(n), 100 * float64(over) / float64(6*n)})
			}
		}
		write(t, folder, "fleet-overshoot.svg", "Connections above the limit at worst, under every fault at once (simulated)",
			"% of the limit; freezes of up to 200 s, whose connections the server still has, are counted", strict, lenient)
	})
}
