// Package fifo is the queue in which callers wait for a budget.
package fifo

import "container/list"

// Queue is a queue of waiting callers. Its owner's mutex guards it.
//
// INVARIANT: a ticket is in the queue until it is taken out by exactly one of
// Next and Leave; only a ticket from Next or All is answered.
type Queue struct{ tickets list.List }

// Ticket is one caller's place.
type Ticket struct {
	place  *list.Element // nil once out of the queue
	number uint64        // of a Shared's: it came before those with a higher one
	answer chan error
}

// Join adds a caller at the end.
func (q *Queue) Join() *Ticket {
	t := &Ticket{answer: make(chan error, 1)}
	t.place = q.tickets.PushBack(t)
	return t
}

// Leave takes t out. It reports false when t is out already: its answer is
// there or about to be.
func (q *Queue) Leave(t *Ticket) bool {
	if t.place == nil {
		return false
	}
	q.tickets.Remove(t.place)
	t.place = nil
	return true
}

// Next takes out the first ticket, or returns nil. The caller answers it once
// its mutex is free.
func (q *Queue) Next() *Ticket {
	if q.Len() == 0 {
		return nil
	}
	t := q.first()
	q.Leave(t)
	return t
}

func (q *Queue) first() *Ticket { return q.tickets.Front().Value.(*Ticket) } // INVARIANT: the list holds tickets only

// All takes out every ticket, first come first.
func (q *Queue) All() []*Ticket {
	var all []*Ticket
	for t := q.Next(); t != nil; t = q.Next() {
		all = append(all, t)
	}
	return all
}

// Len is the number of waiting callers.
func (q *Queue) Len() int { return q.tickets.Len() }

// Answer wakes the caller; nil grants. It never blocks and is called once.
func (t *Ticket) Answer(err error) { t.answer <- err }

// Answered delivers the answer.
func (t *Ticket) Answered() <-chan error { return t.answer }
