package flightpool

import (
	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/reservoir"
)

// Reservoir gives what keeps the pool's connections, for owners of many pools
// that share a bound among them. Its Acquire lends bare connections, without the
// care that a SessionHandle takes of them.
func (p *FlightSQLPool) Reservoir() *reservoir.Reservoir[backend.Conn] { return p.conns }
