package registry

import "maps"

// A place is where a server's definition leads. It has no contents: another place is another pointer.
type place struct{ _ byte }

// leadsWhere reports whether d leads to the same place as other. Credentials do not lead anywhere.
func (d *ServerDefinition) leadsWhere(other *ServerDefinition) bool {
	return d.Kind == other.Kind && d.Target == other.Target && maps.Equal(d.Options, other.Options)
}

// A witness tells the health of a server what the connections of a pool version have shown.
//
// INVARIANT: what is shown by connections to a place that the server has left is not told. Borrowers may have them
// for long, and what they lead to may be shut down.
type witness struct {
	server *server
	place  *place
}

func (w witness) hasLeft() bool { return w.server.def.Load().place != w.place }

// recordCheck and the next two are those of health.
func (w witness) recordCheck(err error, open bool) {
	if !w.hasLeft() {
		w.server.health.recordCheck(err, open)
	}
}

func (w witness) recordAnswer() {
	if !w.hasLeft() {
		w.server.health.recordAnswer()
	}
}

func (w witness) recordLoss(cause error) {
	if !w.hasLeft() {
		w.server.health.recordLoss(cause)
	}
}
