package poolz

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// An event is what an operator may want to know of, and how often it has happened since At.
type event struct {
	At     time.Time `json:"at"`
	Last   time.Time `json:"last"`
	Source string    `json:"source"`
	Text   string    `json:"text"`
	Grave  bool      `json:"grave"`
	Count  uint64    `json:"count"`
}

const (
	maxEvents = 200
	maxSlow   = 200

	// Of events that repeat, one line is kept for so long.
	sameEvent = time.Minute
)

// eventOf is what the counters tell that matters.
var eventOf = []struct {
	count, text string
	grave       bool
}{
	{"open_failures", "opening a connection failed", true},
	{"check_failures", "a health check failed", true},
	{"timeouts", "a caller got no connection in time", true},
	{"rejected", "a caller was refused, since the pool is full", true},
	{"cancels_unconfirmed", "a cancelled statement may still run; its connection was dropped", true},
	{"reset_failures", "a session could not be cleaned; its connection was dropped", true},
	{"leaks", "a session or result is out for longer than LeakAfter", true},
	{"close_stalls", "closing a connection takes longer than CloseTimeout", true},
	{"hook_failures", "a hook or tracer has panicked", true},
	{"rolled_back", "a transaction that was left open was rolled back", false},
	{"retries", "a call was made again on another connection", false},
}

var closeEvents = map[string]string{
	"discarded": "a connection was discarded by its borrower", "unhealthy": "a connection was closed, since its check failed", "lost": "a connection has ended by itself",
}

// collect reads all sources once a second until Close.
func (p *Page) collect() {
	defer close(p.stopped)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		p.sample()
		select {
		case <-tick.C:
		case <-p.stop:
			return
		}
	}
}

func (p *Page) sample() {
	sources, now, open := p.allSources(), time.Now(), 0
	for _, s := range sources {
		if r, ok := s.read(p.cfg.Texts); ok {
			p.record(s, r, now)
			open += r.now["total"]
		}
	}
	p.latest.forgetClosed(open, func() map[uint64]bool {
		ids := map[uint64]bool{}
		for _, s := range sources {
			for _, c := range s.open() {
				ids[c.ID] = true
			}
		}
		return ids
	})
}

// allSources are the pools and the servers that the registries have now, by name.
func (p *Page) allSources() []*source {
	p.mu.Lock()
	registries := maps.Clone(p.mu.registries)
	p.mu.Unlock()
	servers := map[string]*source{}
	for name, r := range registries {
		for _, server := range r.Servers() {
			servers[name+"\x00"+server] = &source{name: serverName(name, server), added: name, registry: r, server: server}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, s := range servers {
		if known := p.mu.servers[name]; known != nil && known.registry == s.registry {
			servers[name] = known
		}
	}
	p.mu.servers = servers
	p.mu.histories = p.histories()
	all := slices.AppendSeq(slices.Collect(maps.Values(p.mu.sources)), maps.Values(servers))
	slices.SortFunc(all, func(a, b *source) int { return compareNames(a.name, b.name) })
	return all
}

// record adds a reading to the history of a source, and tells of what has happened since
// the one before.
func (p *Page) record(s *source, r *reading, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := s.was
	s.was = r
	if s.history == nil && p.mu.histories < maxSources {
		s.history = newHistory()
		p.mu.histories++
	}
	if s.history != nil {
		s.history.add(r, int(now.Sub(p.began).Round(time.Second)/time.Second))
	}
	if was == nil {
		return
	}
	for _, e := range eventOf {
		if n := r.counts[e.count]; n > was.counts[e.count] {
			text := e.text
			if e.count == "open_failures" {
				text = joinText(text, r.lastOpen)
			}
			p.addEvent(event{At: now, Source: s.name, Text: text, Grave: e.grave, Count: n - was.counts[e.count]})
		}
	}
	for reason, text := range closeEvents {
		if n := r.closed[reason]; n > was.closed[reason] {
			p.addEvent(event{At: now, Source: s.name, Text: text, Grave: reason != "discarded", Count: n - was.closed[reason]})
		}
	}
	switch {
	case was.unhealthy.IsZero() && !r.unhealthy.IsZero():
		p.addEvent(event{At: now, Source: s.name, Text: joinText("the server is unhealthy", r.reason), Grave: true, Count: 1})
	case !was.unhealthy.IsZero() && r.unhealthy.IsZero():
		p.addEvent(event{At: now, Source: s.name, Text: "the server is healthy again", Count: 1})
	}
}

// histories counts the sources that have one. The caller holds mu.
func (p *Page) histories() (n int) {
	for _, all := range []map[string]*source{p.mu.sources, p.mu.servers} {
		for _, s := range all {
			if s.history != nil {
				n++
			}
		}
	}
	return n
}

// addEvent adds an event, or counts it where it repeats. The caller holds mu.
func (p *Page) addEvent(e event) {
	e.Last = e.At
	for _, known := range p.mu.events.values {
		if known.Source == e.Source && known.Text == e.Text && e.At.Sub(known.Last) < sameEvent {
			known.Count, known.Last = known.Count+e.Count, e.At
			return
		}
	}
	p.mu.events.add(&e)
}

func joinText(text, more string) string {
	if more == "" {
		return text
	}
	return fmt.Sprintf("%s: %s", text, more)
}
