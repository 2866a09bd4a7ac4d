package flightconn

import (
	"sync"
	"sync/atomic"

	"github.com/flightpool/flightpool/session"
)

// support is what the connections of an endpoint have learned of the server
// from its answers. ListActions is not asked: servers of the common libraries
// answer it with a constant.
type support struct {
	closeSession learned
	renew        learned
	cancelInfo   learned
	cancelQuery  learned
	actions      sync.Map // custom cancel action -> *learned
	txIDs        atomic.Int32
	order        session.StatementOrder
}

// Values of support.txIDs.
const (
	txIDsUnknown int32 = iota
	txIDsTrusted
	txIDsIgnored
	txIDsNone // there are no transactions
)

// learned is whether the server has a call.
type learned struct{ refused atomic.Bool }

func (l *learned) refuse()         { l.refused.Store(true) }
func (l *learned) isRefused() bool { return l.refused.Load() }

func (s *support) action(name string) *learned {
	l, _ := s.actions.LoadOrStore(name, &learned{})
	return l.(*learned)
}
