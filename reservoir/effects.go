package reservoir

// effects are what a section under the lock decided and did not do: nothing is called,
// started, sent or closed before the lock is released. They are chains through the
// entries and waiters themselves, so that deciding allocates nothing.
type effects[C any] struct {
	wake, lastWake *waiter[C] // first to last
	open           *entry[C]
	check          *entry[C]
	close          *entry[C]
	funcs          []func() // what is too rare for a chain of its own
}

// wakeWaiter wakes a waiter, which has left the queue and knows its result.
func (fx *effects[C]) wakeWaiter(w *waiter[C]) {
	if fx.wake == nil {
		fx.wake = w
	} else {
		fx.lastWake.nextEffect = w
	}
	fx.lastWake = w
}

func (fx *effects[C]) afterUnlock(f func()) { fx.funcs = append(fx.funcs, f) }

// unlock ends a section under the lock and carries its effects out. What it
// starts runs on the reservoir's context, not on that of the call that happens
// to have caused it.
func (r *Reservoir[C]) unlock(fx *effects[C]) {
	r.verify()
	r.mu.Unlock()
	for w := fx.wake; w != nil; {
		next := w.nextEffect // w belongs to its goroutine from the send on
		w.nextEffect = nil
		w.ready <- struct{}{}
		w = next
	}
	for e := fx.open; e != nil; {
		next := e.nextEffect
		e.nextEffect = nil
		go r.open(e)
		e = next
	}
	for e := fx.check; e != nil; {
		next := e.nextEffect
		e.nextEffect = nil
		go r.check(e)
		e = next
	}
	for e := fx.close; e != nil; {
		next := e.nextEffect
		e.nextEffect = nil
		go r.close(e)
		e = next
	}
	for _, f := range fx.funcs {
		f()
	}
}
