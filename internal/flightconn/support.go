package flightconn

import (
	"sync"
	"sync/atomic"

	"github.com/flightpool/flightpool/backend"
)

// capabilities is what the connections of an endpoint have learned of the server
// from its answers. ListActions is not asked: servers of the common libraries
// answer it with a constant.
//
// It is safe for use by any goroutine, and its zero value knows nothing.
// Whatever is recorded stays for the life of the endpoint, so that what is
// learned of transactions is confirmed before (rpcCall.confirmed). actions has,
// beside the user's own cancel actions, PollFlightInfo by the kind of the
// command.
type capabilities struct {
	closeSession capability
	renew        capability
	cancelInfo   capability
	cancelQuery  capability
	actions      sync.Map // name of the call -> *capability
	txIDs        atomic.Int32
	order        backend.StatementOrder
}

// Values of capabilities.txIDs: what the server does with the end of a
// transaction whose id it does not know. It refuses it (checked), confirms it
// (ignored), or has no transactions to end.
const (
	txIDsUnknown int32 = iota
	txIDsChecked
	txIDsIgnored
	txIDsNone // there are no transactions
)

// capability is whether the server has a call. Until the contrary is known it
// is tried.
type capability struct{ missing atomic.Bool }

func (l *capability) markMissing()    { l.missing.Store(true) }
func (l *capability) isMissing() bool { return l.missing.Load() }

// forAction is what is known of a call that has a name of its own. All who ask
// by one name share one.
func (s *capabilities) forAction(name string) *capability {
	l, _ := s.actions.LoadOrStore(name, &capability{})
	return l.(*capability)
}
