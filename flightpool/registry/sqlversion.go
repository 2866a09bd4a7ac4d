package registry

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"math"

	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/taskgroup"
	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/reservoir/sqlconn"
)

// newSQLVersion makes a version of its reservoir. Where its connector knows of others that are short of connections, it
// gives some up for them: they count against a budget that the registry does not know.
func newSQLVersion(conns *reservoir.Reservoir[*sqlconn.Conn], l *sqlTimeouts, connector driver.Connector, tracing *sqlTracing) *sqlVersion {
	g := &sqlVersion{reservoirVersion: reservoirVersion[*sqlconn.Conn]{conns, &taskgroup.Group{}}, timeouts: l, connector: connector, tracing: tracing}
	if reclaimer, ok := connector.(Reclaimer); ok {
		g.stopReclaims = reclaimer.OnReclaim(func(n int) (closing int) {
			if n == math.MaxInt { // all are revoked: what is opened meanwhile is none of them
				conns.Reset()
				return n
			}
			return conns.GiveUpOpened(n)
		})
	}
	return g
}

// Close also closes a connector that has something of its own to close.
func (g *sqlVersion) Close(ctx context.Context) error {
	err := g.reservoirVersion.Close(ctx)
	closer, closes := g.connector.(io.Closer)
	if !closes && g.stopReclaims == nil {
		return err
	}
	closing := callback.Go(callback.NoValue(func() error {
		if g.stopReclaims != nil {
			defer g.stopReclaims()
		}
		if closes {
			return closer.Close()
		}
		return nil
	}))
	if !closing.Wait(ctx, closeGrace) {
		return errjoin.Join(err, errors.New("the connector's Close has not returned"))
	}
	return errjoin.Join(err, closing.Failure(theKind))
}
