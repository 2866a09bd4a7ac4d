package prover

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// The setting of the whole server that programs change, what its operator has set it to, and what the
// server gives it when nobody has.
const (
	shade, operators, byDefault = "shade", "grey", "white"
)

// shadeOf is what a step says to the server: a plain SET or RESET, which all sessions hear, or that of a
// value of the session's own. No two steps set the same value.
func (w *world) shadeOf(s step) string {
	w.shades++
	switch s.verb {
	case "setall":
		return fmt.Sprintf("SET %s = 'all-%d'", shade, w.shades)
	case "setown":
		return fmt.Sprintf("SET SESSION %s = 'own-%d'", shade, w.shades)
	case "resetall":
		return "RESET " + shade
	default: // resetown
		return "RESET SESSION " + shade
	}
}

// paint changes the setting, in an actor's session or by a call of the pool's.
func (w *world) paint(s step, a *actor) {
	sql := w.shadeOf(s)
	if a == nil {
		w.painters++
		err := w.call(s, func(ctx context.Context) error {
			_, err := w.pool.Update(ctx, sql)
			return err
		})
		w.painters--
		w.asked[w.pool] = w.asked[w.pool] || err == nil
		w.judge(s, nil, err)
		return
	}
	if !a.has(shade) {
		w.painters++
	}
	a.note(shade)
	// A session may be gone, with which the setting stays; and one that nobody has asked for a setting is
	// not asked in a transaction.
	w.unpainted = w.unpainted || a.shaken || a.tx != nil && !w.asked[w.poolOf(s)]
	err := w.call(s, func(ctx context.Context) error {
		_, err := a.handle.Update(ctx, sql)
		return err
	})
	w.asked[w.poolOf(s)] = w.asked[w.poolOf(s)] || err == nil && a.tx == nil
	w.judge(s, a, err)
	if err == nil {
		w.atHome(a, sql)
	}
}

// painted is for an actor that gives its session back. With a token that has ended by then nothing can
// be taken back: a connection is lent until that is so many seconds away.
func (w *world) painted(a *actor) {
	if a.has(shade) {
		w.painters--
		w.unpainted = w.unpainted || a.shaken || w.program.auth == "token" && time.Since(a.since) > leastTokenLeft
	}
}

const leastTokenLeft = 9 * time.Second

// seesShade holds what a session without changes of its own sees against what others have set.
func (w *world) seesShade(what fmt.Stringer, a *actor, seen string) {
	switch {
	case a.has(shade):
	case w.mustBePainted() && !w.parallel && !w.givesUpPainter() && seen != w.serversShade(): // one that hides what others change
		w.breaks("setting of another", "%q sees the shade %s, which is %s on the server", what, seen, w.serversShade())
	case strings.HasPrefix(seen, "own-") && !w.sharesSession():
		w.breaks("setting of another", "%q sees the shade %s, which a session has of its own", what, seen)
	case w.mustBePainted() && w.painters == 0 && seen != operators:
		w.breaks("setting of another", "%q sees the shade %s", what, seen)
	}
}

// givesUpPainter reports whether a session may be given up that has changed the setting: it is put back
// behind the caller, at any time.
func (w *world) givesUpPainter() bool {
	for _, a := range w.actors {
		if a.shaken && a.has(shade) {
			return true
		}
	}
	return false
}

// mustBePainted reports whether every borrower's changes could be taken back: those of a session that is
// lost stay.
func (w *world) mustBePainted() bool {
	return w.calm && !w.late && !w.unpainted && w.profile.SessionKey != testserver.ByCall && !w.sharesSession()
}

// sharesSession reports whether all connections have one session, which outlives each: a borrower whose
// connection breaks leaves to the next what it has set.
func (w *world) sharesSession() bool {
	return w.program.auth == "token" && w.profile.SessionKey == testserver.ByBearer
}

// shadeAtLast is what the setting is at the end.
func (w *world) shadeAtLast() {
	if w.shades > 0 {
		w.seesShade(step{verb: "end"}, nil, w.serversShade())
	}
}

// serversShade is what a new session would see.
func (w *world) serversShade() (value string) {
	s, err := w.db.Open(w.t.Context())
	if err != nil {
		panic(err)
	}
	defer func() { _ = s.Close() }()
	rows, err := s.Query(w.t.Context(), "SHOW "+shade, nil)
	if err != nil {
		panic(err)
	}
	defer rows.Release()
	for rows.Next() {
		value = strings.Clone(rows.RecordBatch().Column(0).ValueStr(0))
	}
	return value
}

// paints adds steps that change the setting. Those of a second user go by a pool of its own.
func (g *generator) paints(p *program) {
	p.users = 1 + g.IntN(2)
	for range 2 + g.IntN(6) {
		s := step{who: g.pick("a", "b", "c", ""), verb: g.pick("setall", "setall", "setown", "setown", "resetown", "resetall")}
		if !g.calm {
			s = g.deadline(s)
		}
		at := g.IntN(len(p.steps) + 1)
		p.steps = slices.Insert(p.steps, at, s)
		if s.who != "" && g.IntN(2) == 0 {
			p.steps = slices.Insert(p.steps, at, step{who: s.who, verb: "acquire"})
		}
		if g.IntN(3) == 0 {
			p.steps = slices.Insert(p.steps, g.IntN(len(p.steps)+1), step{verb: "sleep", args: []string{g.pick("1s", "31s", "4m", "16m", "1h")}}, step{verb: "look"})
		}
	}
}

// poolOf is the pool of an actor: with two users c has another one of the same server.
func (w *world) poolOf(s step) *flightpool.FlightSQLPool {
	if s.who == "c" && w.second != nil {
		return w.second
	}
	return w.pool
}

// source is how the source of tokens does: so many calls of it fail, or give tokens that live for a minute, or
// all take longer.
type source struct {
	fails, short int
	slow         bool
}

func (w *world) sourceDoes(s step) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.source = map[string]source{"fail": {fails: 20}, "short": {short: 3}, "slow": {slow: true}, "well": {}}[s.arg(0)]
	w.sourceWorse = w.sourceWorse || s.arg(0) != "well"
	w.unpainted = w.unpainted || w.source.short > 0 // a session may outlive its token, with which the setting stays
}

// life is what the source gives a token, or why it gives none.
func (s source) life(ctx context.Context) (time.Duration, error) {
	switch {
	case s.fails > 0:
		return 0, errSource
	case s.slow:
		pause := time.NewTimer(20 * time.Second)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	case s.short > 0:
		return shortLife, nil
	}
	return tokenLife, nil
}

var errSource = fmt.Errorf("the program's source of tokens has failed")

// tokensOf are the tokens that a program may need.
func tokensOf() (all []string) {
	for i := range 2000 {
		all = append(all, "token-"+strconv.Itoa(i))
	}
	return all
}

// sources adds steps of the source.
func (g *generator) sources(p *program) {
	p.auth = "token"
	for range 1 + g.IntN(4) {
		p.steps = slices.Insert(p.steps, g.IntN(len(p.steps)+1), step{verb: "source", args: []string{g.pick("fail", "slow", "short", "well", "well")}})
	}
	for range g.IntN(4) {
		p.steps = slices.Insert(p.steps, g.IntN(len(p.steps)+1), step{verb: "sleep", args: []string{g.pick("1s", "5s", "4m", "6m", "11m")}})
	}
	for range g.IntN(4) {
		if !g.calm {
			p.steps = slices.Insert(p.steps, g.IntN(len(p.steps)+1), step{verb: g.pick("expire", "renew", "renew"), args: []string{g.pick("well", "gone")}})
		}
	}
}
