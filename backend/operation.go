package backend

import "sync/atomic"

// Operation is what the server knows a running call by. The backend sets its
// name as soon as the server has told it, the cancel chain reads it.
//
// INVARIANT: the name is that of what the call has sent last, or there is none. What the
// server says of an earlier one would pass for the end of a statement that runs.
type Operation struct {
	name  atomic.Pointer[any]
	split atomic.Bool
}

// MarkSplit records that a batch of an ingestion is sent in several parts, of which a server
// may refuse a later one. A nil Operation ignores it.
func (o *Operation) MarkSplit() {
	if o != nil {
		o.split.Store(true)
	}
}

// IsSplit reports whether MarkSplit was called.
func (o *Operation) IsSplit() bool { return o != nil && o.split.Load() }

// SetName records the backend's own name of the operation (for example the
// FlightInfo). A nil Operation ignores it.
func (o *Operation) SetName(name any) {
	if o != nil {
		o.name.Store(&name)
	}
}

// ForgetName is for a call that sends its statement anew, before it does.
func (o *Operation) ForgetName() {
	if o != nil {
		o.name.Store(nil)
	}
}

// Name is nil while the server has not named the operation yet.
func (o *Operation) Name() any {
	if o == nil {
		return nil
	}
	if name := o.name.Load(); name != nil {
		return *name
	}
	return nil
}
