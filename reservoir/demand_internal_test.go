package reservoir

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDemand(t *testing.T) {
	base := counts{maxSize: 16, maxOpens: 8}
	with := func(set func(*counts)) counts {
		c := base
		set(&c)
		return c
	}
	for name, c := range map[string]struct {
		counts       counts
		open, retire int
	}{
		"nothing":                       {base, 0, 0},
		"a waiter":                      {with(func(c *counts) { c.waiters = 1 }), 1, 0},
		"a waiter whose open runs":      {with(func(c *counts) { c.waiters, c.opening = 1, 1 }), 0, 0},
		"a waiter with a check":         {with(func(c *counts) { c.waiters, c.checkedWaiters, c.established = 1, 1, 1 }), 0, 0},
		"more checks than waiters":      {with(func(c *counts) { c.waiters, c.checkedWaiters, c.established = 1, 3, 3 }), 0, 0},
		"many waiters":                  {with(func(c *counts) { c.waiters = 100 }), 8, 0},
		"many waiters, little room":     {with(func(c *counts) { c.waiters, c.established = 100, 13 }), 3, 0},
		"full":                          {with(func(c *counts) { c.waiters, c.established = 100, 16 }), 0, 0},
		"full of closing ones":          {with(func(c *counts) { c.waiters, c.established, c.closing = 100, 8, 8 }), 0, 0},
		"overflow":                      {with(func(c *counts) { c.waiters, c.established, c.overflow = 2, 16, 4 }), 2, 0},
		"overflow has a bound":          {with(func(c *counts) { c.waiters, c.established, c.overflow = 9, 18, 4 }), 2, 0},
		"overflow is for waiters":       {with(func(c *counts) { c.minIdle, c.established, c.overflow = 5, 16, 4 }), 0, 0},
		"overflow for those unserved":   {with(func(c *counts) { c.waiters, c.opening, c.established, c.overflow = 2, 1, 16, 4 }), 1, 0},
		"beyond after Resize":           {with(func(c *counts) { c.waiters, c.established, c.maxSize = 2, 16, 4 }), 0, 0},
		"MinIdle":                       {with(func(c *counts) { c.minIdle, c.idle, c.established = 4, 1, 6 }), 3, 0},
		"MinIdle and waiters":           {with(func(c *counts) { c.minIdle, c.waiters, c.established = 2, 3, 5 }), 5, 0},
		"WaitReady":                     {with(func(c *counts) { c.readyTarget, c.idle, c.established = 6, 1, 4 }), 2, 0},
		"WaitReady includes MinIdle":    {with(func(c *counts) { c.readyTarget, c.minIdle, c.idle, c.established = 6, 4, 1, 4 }), 3, 0},
		"paused":                        {with(func(c *counts) { c.waiters, c.opensFailing, c.paused = 5, true, true }), 0, 0},
		"failing":                       {with(func(c *counts) { c.waiters, c.opensFailing = 5, true }), 1, 0},
		"failing, and one runs":         {with(func(c *counts) { c.waiters, c.opensFailing, c.opening = 5, true, 1 }), 0, 0},
		"a stale one":                   {with(func(c *counts) { c.stale, c.idle, c.established = 1, 1, 1 }), 1, 0},
		"its successor is coming":       {with(func(c *counts) { c.stale, c.idle, c.established, c.opening = 1, 1, 1, 1 }), 0, 0},
		"its successor has come":        {with(func(c *counts) { c.stale, c.superseded, c.idle, c.established = 1, 1, 1, 2 }), 0, 1},
		"it came, and callers wait":     {with(func(c *counts) { c.stale, c.superseded, c.waiters, c.established = 1, 1, 1, 2 }), 1, 0},
		"stale ones that MinIdle needs": {with(func(c *counts) { c.stale, c.idle, c.minIdle, c.established = 4, 4, 4, 4 }), 4, 0},
		"full and stale":                {with(func(c *counts) { c.stale, c.idle, c.established = 16, 16, 16 }), 0, 4},
		"full, stale, one closes":       {with(func(c *counts) { c.stale, c.idle, c.established, c.closing = 15, 15, 15, 1 }), 0, 3},
		"full, stale, all slots used":   {with(func(c *counts) { c.stale, c.established, c.opening, c.closing = 12, 12, 2, 2 }), 0, 0},
		"full, stale and wanted":        {with(func(c *counts) { c.stale, c.established, c.waiters = 16, 16, 50 }), 0, 4},
		"full, its successor is coming": {with(func(c *counts) { c.stale, c.established, c.opening = 1, 15, 1 }), 0, 0},
		"full and small":                {with(func(c *counts) { c.maxSize, c.stale, c.established = 2, 2, 2 }), 0, 1},
		"full, one open at a time":      {with(func(c *counts) { c.maxOpens, c.stale, c.established = 1, 16, 16 }), 0, 1},
		"full, stale and failing":       {with(func(c *counts) { c.stale, c.established, c.opensFailing = 16, 16, true }), 0, 0},
		"full, a place is coming":       {with(func(c *counts) { c.stale, c.idle, c.established, c.closing = 1, 15, 15, 1 }), 0, 0},
		"full, one of two superseded":   {with(func(c *counts) { c.waiters, c.stale, c.superseded, c.established = 5, 2, 1, 16 }), 0, 1},
		"overflow is not for MinIdle":   {with(func(c *counts) { c.waiters, c.minIdle, c.established, c.overflow = 1, 5, 14, 4 }), 2, 0},
		"overflow for whom no open runs": {
			with(func(c *counts) { c.waiters, c.opening, c.minIdle, c.established, c.overflow = 1, 1, 5, 15, 4 }), 0, 0,
		},
		"full, room after a retirement": {with(func(c *counts) { c.stale, c.established = 12, 12 }), 4, 0}, // of 8 that may run: room for 4
	} {
		t.Run(name, func(t *testing.T) {
			open, retire := demand(c.counts)
			require.Equal(t, c.open, open, "open")
			require.Equal(t, c.retire, retire, "retire")
		})
	}
}

// Whatever the counts: never more than there is room for, never more retired
// than there are, nothing opened that is not wanted, and no state in which
// callers wait, there is room, nothing is paused and yet nothing happens.
func TestDemandKeepsItsBoundsEverywhere(t *testing.T) {
	small := []int{0, 1, 2, 5}
	for _, waiters := range small {
		for _, served := range small {
			for _, idle := range small {
				for _, used := range small {
					for _, opening := range small {
						for _, closing := range small {
							for _, minIdle := range small {
								for _, overflow := range small {
									for mask := range 4 {
										for stale := 0; stale <= idle+used; stale += 2 {
											c := counts{
												waiters: waiters, checkedWaiters: served, idle: idle, established: idle + used, opening: opening, closing: closing,
												stale: stale, superseded: stale / 3, minIdle: minIdle, maxSize: 6, overflow: overflow, maxOpens: 3,
												opensFailing: mask > 0, paused: mask == 2,
											}
											holdDemand(t, c)
										}
									}
								}
							}
						}
					}
				}
			}
		}
	}
}

func holdDemand(t *testing.T, c counts) {
	t.Helper()
	open, retire := demand(c)
	switch {
	case open < 0, retire < 0, retire > c.stale:
		t.Fatalf("%+v: open %d, retire %d", c, open, retire)
	case open > 0 && c.total()+open > c.maxSize+c.overflow, open > 0 && c.opening+open > c.maxOpens, open > 0 && c.paused:
		t.Fatalf("%+v: open %d is too many", c, open)
	case open > max(0, c.wantedOpens()-c.opening):
		t.Fatalf("%+v: open %d that nobody wants", c, open)
	case open == 0 && c.uncheckedWaiters() > c.opening && c.total() < c.maxSize+c.overflow && !c.paused && c.opening == 0:
		t.Fatalf("%+v: callers wait for nothing", c)
	case retire > max(c.superseded, 1, c.maxSize/4):
		t.Fatalf("%+v: retire %d", c, retire)
	}
}

// Done again and again, what demand asks for comes to an end, and no more is missing at a time
// than may be.
func TestDemandComesToAnEnd(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 300_000 {
		c := counts{maxSize: 1 + random.IntN(40), maxOpens: 1 + random.IntN(12), opensFailing: random.IntN(8) == 0, overflow: random.IntN(3)}
		c.paused = random.IntN(8) == 0
		c.minIdle, c.readyTarget = random.IntN(c.maxSize+1), random.IntN(c.maxSize+1)
		c.established = random.IntN(c.maxSize + 1)
		c.idle, c.stale = random.IntN(c.established+1), random.IntN(c.established+1)
		c.superseded = random.IntN(min(c.stale, c.established-c.stale) + 1)
		c.opening, c.closing = random.IntN(min(c.maxOpens, 4)+1), random.IntN(3)
		if random.IntN(2) == 0 {
			c.waiters, c.checkedWaiters = random.IntN(20), random.IntN(4)
		}
		first, missing := c, max(c.superseded, c.maxReplacing())
		for step := 0; ; step++ {
			open, retire := demand(c)
			retire = min(retire, c.idle) // only idle ones are closed: the rest when they come back
			if open == 0 && retire == 0 {
				break
			}
			require.Less(t, step, 40, "%+v", first)
			c.opening, c.closing, c.established, c.idle, c.stale = c.opening+open, c.closing+retire, c.established-retire, c.idle-retire, c.stale-retire
			c.superseded = min(max(0, c.superseded-retire), c.established-c.stale)
		}
		require.LessOrEqual(t, first.stale-c.stale, missing, "%+v", first)
		require.LessOrEqual(t, c.opening, max(first.opening, c.maxOpens), "%+v", first)
		require.LessOrEqual(t, c.total(), max(first.total(), c.maxSize+c.overflow), "%+v", first)
	}
}
