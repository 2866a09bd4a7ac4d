// Package usedup knows what gives its rows once, such as a reader. A function that runs again behind a conflict would load what is left
// of one from outside of it, nothing mostly, and be told as done.
package usedup

import (
	"reflect"
	"sync"
)

// Sources are those of one function that may run several times, by any goroutine. The zero value has none.
type Sources struct {
	mu     sync.Mutex
	now    []source // of this run
	before []source
}

type source struct {
	it   any
	rest bool // it was not read to its end: who goes on has the other rows alone
}

// NextRun is for a run that has come to nothing.
func (s *Sources) NextRun() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before, s.now = append(s.before, s.now...), nil
}

// Took takes note that rows of a source were taken, all of them if it was read to its end. One that cannot be compared is not known again.
func (s *Sources) Took(it any, all bool) {
	if !reflect.ValueOf(it).Comparable() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = append(s.now, source{it, !all})
}

// Before is for the reading of a source of which a run before has taken rows. It is nil for another.
func (s *Sources) Before(it any) *Reading {
	if !reflect.ValueOf(it).Comparable() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, taken := range s.before {
		if taken.it == it {
			return &Reading{rest: taken.rest}
		}
	}
	return nil
}

// Reading is that of a source of which a run before has taken rows, all or some, by one goroutine. One that was read to its end may have
// begun again.
type Reading struct {
	rest    bool
	begun   bool
	lacking bool
}

// Next is next, as long as no rows are lacking.
func (r *Reading) Next(next func() bool) bool {
	if !r.lacking && !r.rest && next() {
		r.begun = true
		return true
	}
	r.lacking = !r.begun
	return false
}

// IsLacking reports whether rows are lacking, once Next has reported that there are no more.
func (r *Reading) IsLacking() bool { return r.lacking }
