package flightconn

import (
	"sync"
	"sync/atomic"

	"github.com/flightpool/flightpool/backend"
)

// capabilities is what the connections of an endpoint have learned of the server
// from its answers. ListActions is not asked: servers of the common libraries
// answer it with a constant.
type capabilities struct {
	closeSession capability
	renew        capability
	cancelInfo   capability
	cancelQuery  capability
	actions      sync.Map // custom cancel action -> *learned
	txIDs        atomic.Int32
	order        backend.StatementOrder
}

// Values of support.txIDs.
const (
	txIDsUnknown int32 = iota
	txIDsChecked
	txIDsIgnored
	txIDsNone // there are no transactions
)

// capability is whether the server has a call.
type capability struct{ missing atomic.Bool }

func (l *capability) markMissing()    { l.missing.Store(true) }
func (l *capability) isMissing() bool { return l.missing.Load() }

func (s *capabilities) forAction(name string) *capability {
	l, _ := s.actions.LoadOrStore(name, &capability{})
	return l.(*capability)
}
