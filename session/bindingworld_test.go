package session

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/backend"
)

// bindingWorld is a world that runs a query in order to prepare it, and executes an INSERT that is sent as a query with the
// row that was bound to it. Its handles are eight bytes.
type bindingWorld struct{ *world }

func (bindingWorld) RepeatsQueries(context.Context) (bool, error) { return true, nil }

func (w bindingWorld) Prepare(ctx context.Context, sql string, call backend.Call) (backend.Prepared, error) {
	if strings.Contains(sql, preparingWords) {
		err := w.trip(ctx, "Prepare "+sql, true, func() error {
			return worldError(backend.FaultStatement, codes.Internal, "error: "+preparingWords)
		})
		return nil, err
	}
	p, err := w.world.Prepare(ctx, sql, call)
	if err != nil {
		return nil, err
	}
	return &bindingPrepared{worldPrepared: p.(*worldPrepared)}, nil
}

// conn is the world as its Conn.
func (w *world) conn() backend.Conn {
	if w.binds {
		return bindingWorld{w}
	}
	return w
}

type bindingPrepared struct {
	*worldPrepared
	bound []int64
}

func (p *bindingPrepared) FirstHandle() string {
	return string(binary.BigEndian.AppendUint64(nil, uint64(p.no)))
}

// Query binds in a round trip of its own. The stream has no rows, and stores the bound ones as it ends.
func (p *bindingPrepared) Query(ctx context.Context, params arrow.RecordBatch, call backend.Call) (backend.Stream, error) {
	if params == nil || !strings.HasPrefix(p.sql, "INSERT") {
		return p.worldPrepared.Query(ctx, params, call)
	}
	defer stillThere(params)
	values := slices.Clone(params.Column(0).(*array.Int64).Values()[:1])
	err := p.w.trip(ctx, "bind "+p.sql, false, func() error {
		_, err := p.textOf(p.sql)
		p.bound = values
		return err
	})
	if err != nil {
		return nil, err
	}
	call.Tx = p.tx
	stream, err := p.w.query(ctx, p.sql, p.worldPrepared, call)
	if err != nil {
		return nil, err
	}
	s := stream.(*worldStream)
	s.rows, s.values, p.bound = 0, p.bound, nil
	return s, nil
}
