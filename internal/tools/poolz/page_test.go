package poolz

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/testserver"
)

// shown waits until the page shows a state that it has asked for after now.
const shown = `new Promise(done => {
	const was = document.documentElement.dataset.shown;
	const look = setInterval(() => { if (document.documentElement.dataset.shown !== was) { clearInterval(look); done(true); } }, 5);
})`

func TestNumbersOnThePageAreThoseOfStats(t *testing.T) {
	b := open(t)
	stop := b.load(t)
	for range 5 {
		b.eval(t, shown, nil) // the next state is asked for after this one
		before := b.pool.Stats()
		b.eval(t, shown, nil)
		var is map[string]string
		b.eval(t, `Object.fromEntries([...document.querySelectorAll("[data-count]")].map(n => [n.dataset.count, n.textContent]))`, &is)
		after := b.pool.Stats()
		for name, between := range map[string][2]uint64{
			"calls": {before.Calls, after.Calls}, "failures": {before.Failures, after.Failures}, "acquired": {before.Acquired, after.Acquired},
			"sessions": {before.Sessions, after.Sessions}, "opens": {before.Opens, after.Opens}, "closed_discarded": {before.Closed[2], after.Closed[2]},
		} {
			n, err := strconv.ParseUint(strings.ReplaceAll(is[name], ",", ""), 10, 64)
			require.NoError(t, err, name)
			require.GreaterOrEqual(t, n, between[0], name)
			require.LessOrEqual(t, n, between[1], name)
		}
	}
	stop()
	require.NoError(t, b.hold(t, 6))
	b.eval(t, shown, nil)
	b.eval(t, shown, nil)
	var row []string
	b.eval(t, `[...document.querySelector("#sources tr.current").cells].map(c => c.textContent)`, &row)
	s := b.pool.Stats()
	require.Equal(t, []string{"warehouse", "healthy", "", "6", "0", "0", "6", "1"}, row[:8])
	require.Equal(t, strconv.FormatUint(s.Calls, 10), strings.ReplaceAll(row[8], ",", ""))
	var rows int
	b.eval(t, `[...document.querySelectorAll("#connections tbody tr")].filter(r => r.cells[1].textContent === "borrowed").length`, &rows)
	require.Equal(t, s.OnLoan, rows)
	require.Empty(t, b.complaints())
}

// Two names may differ in what JSON has no word for, and a connection that moves may be told twice.
func TestRowsOfOneNameStayApartAndGo(t *testing.T) {
	b := open(t)
	rows := func(items string) (texts []string) {
		b.eval(t, `(items => { const table = byId("events"); fill(table, items, () => "same", i => [i, "", "", ""], ""); return [...table.tBodies[0].rows].map(r => r.cells[0].textContent); })(`+items+`)`, &texts)
		return texts
	}
	for range 3 {
		require.Equal(t, []string{"a", "b"}, rows(`["a", "b"]`))
	}
	require.Equal(t, []string{"b"}, rows(`["b"]`))
}

func TestThePageIsUsedFromTheKeyboard(t *testing.T) {
	b := open(t)
	b.eval(t, shown, nil)
	var seen []string
	where := `(e => e === document.body ? "" : (e.id || e.name || e.getAttribute("aria-labelledby") || e.textContent.trim()) + "|" + getComputedStyle(e).outlineStyle)(document.activeElement)`
	for range 40 {
		var at string
		b.do(t, chromedp.KeyEvent(kb.Tab))
		b.eval(t, where, &at)
		name, outline, _ := strings.Cut(at, "|")
		if name == "" {
			break // behind the last
		}
		require.Equal(t, "solid", outline, "the focus is seen: %s", name)
		seen = append(seen, name)
	}
	require.Subset(t, seen, []string{"skip", "range", "pause", "warehouse", "all/lake", "connections-title", "slow-title", "events-title"})
	require.Less(t, len(seen), 40, "the keyboard leaves the page")

	b.do(t, chromedp.Focus(`#sources a[href="#all%2Flake"]`, chromedp.ByQuery), chromedp.KeyEvent(kb.Enter))
	b.eval(t, shown, nil)
	var title, focus string
	b.eval(t, `document.getElementById("details-title").textContent`, &title)
	b.eval(t, where, &focus)
	require.Equal(t, "all/lake", title)
	require.True(t, strings.HasPrefix(focus, "all/lake"), "the focus stays: %s", focus)
	b.openStack(t)
	b.do(t, chromedp.Focus("#pause", chromedp.ByQuery), chromedp.KeyEvent(" "))
	var pressed string
	b.eval(t, `document.getElementById("pause").getAttribute("aria-pressed") + document.getElementById("status").textContent`, &pressed)
	require.Equal(t, "truePaused", pressed)
	b.do(t, chromedp.KeyEvent(" "), chromedp.Focus(`input[value="5m"]`, chromedp.ByQuery), chromedp.KeyEvent(kb.ArrowRight))
	b.eval(t, shown, nil)
	var label string
	b.eval(t, `document.querySelector("figure svg").getAttribute("aria-label")`, &label)
	require.Contains(t, label, "last hour")
	require.Empty(t, b.complaints())
}

// openStack finds out from the keyboard who has borrowed a connection. It stays in sight while
// the page goes on.
func (b *browser) openStack(t *testing.T) {
	require.NoError(t, b.hold(t, 1))
	b.do(t, chromedp.Focus(`#sources a[href="#warehouse"]`, chromedp.ByQuery), chromedp.KeyEvent(kb.Enter))
	b.eval(t, shown, nil)
	b.eval(t, shown, nil)
	b.do(t, chromedp.Focus("#connections summary", chromedp.ByQuery), chromedp.KeyEvent(kb.Enter))
	b.eval(t, shown, nil)
	b.eval(t, shown, nil)
	var stack string
	b.eval(t, `[...document.querySelectorAll("#connections details[open] li")].map(li => li.innerText).join("\n")`, &stack)
	require.Regexp(t, `(?m)^github\.com/flightpool/flightpool/internal/tools/poolz\.\(\*browser\)\.hold rig_test\.go:\d+$`, stack)
}

func TestThePageIsAccessible(t *testing.T) {
	axe := axeCore(t)
	b := open(t)
	stop := b.load(t)
	require.NoError(t, b.hold(t, 2))
	b.do(t, chromedp.Sleep(8*time.Second)) // charts with something in them
	b.srv.Faults().Set(testserver.Fault{On: testserver.OnSession, Times: 2, Do: testserver.Fail(codes.Unavailable, "no")})
	b.pool.Reset()
	b.do(t, chromedp.Sleep(3*time.Second))
	stop()
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 390} {
			b.do(t, chromedp.ActionFunc(func(ctx context.Context) error {
				return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}).Do(ctx)
			}), chromedp.EmulateViewport(width, 900))
			b.eval(t, shown, nil)
			var picture []byte
			b.do(t, chromedp.FullScreenshot(&picture, 100))
			require.NoError(t, os.WriteFile(filepath.Join(pictures(t), fmt.Sprintf("%s-%d.png", scheme, width)), picture, 0o600))
			var overflow bool
			b.eval(t, `document.documentElement.scrollWidth > innerWidth`, &overflow)
			require.False(t, overflow, "%s at %d: the page scrolls sideways", scheme, width)
			b.eval(t, axe+"; true", nil)
			var found []struct {
				ID, Help string
				Nodes    []struct{ HTML, FailureSummary string }
			}
			b.eval(t, `axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"]}).then(r => r.violations)`, &found)
			text, err := json.MarshalIndent(found, "", " ")
			require.NoError(t, err)
			require.Empty(t, found, "%s at %d: %s", scheme, width, text)
		}
	}
	require.Empty(t, b.complaints())
}
