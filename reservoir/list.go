package reservoir

// A link is a value's place in a list. A value that may be in one list holds
// one link, so that entering and leaving take O(1) and no allocation.
type link[T any] struct {
	prev, next *link[T]
	self       T
}

// linked says whether the value is in a list.
func (l *link[T]) linked() bool { return l.next != nil }

// A list is a ring of links around a root. The root's self is the zero T, so
// that the neighbours of an empty list's root, and the value after the last,
// read as nil.
type list[T any] struct {
	root link[T]
	n    int
}

func (l *list[T]) init() { l.root.prev, l.root.next = &l.root, &l.root }

func (l *list[T]) front() T { return l.root.next.self }
func (l *list[T]) back() T  { return l.root.prev.self }

func (l *list[T]) pushFront(x *link[T]) { l.insertAfter(&l.root, x) }
func (l *list[T]) pushBack(x *link[T])  { l.insertAfter(l.root.prev, x) }

func (l *list[T]) insertAfter(at, x *link[T]) {
	x.prev, x.next = at, at.next
	at.next.prev = x
	at.next = x
	l.n++
}

func (l *list[T]) remove(x *link[T]) {
	x.prev.next, x.next.prev = x.next, x.prev
	x.prev, x.next = nil, nil
	l.n--
}
