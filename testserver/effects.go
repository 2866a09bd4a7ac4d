package testserver

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Effect is what a fault does. Its error becomes the answer of the call; nil
// lets it go on.
type Effect func(context.Context, *FaultTarget) error

// FaultTarget is the call or connection that a fault strikes.
type FaultTarget struct {
	faultMoment
	fault *SetFault
}

// Delay waits before the call goes on, until the call or the fault ends.
func Delay(d time.Duration) Effect {
	return func(ctx context.Context, v *FaultTarget) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		return v.wait(ctx, timer.C)
	}
}

// Hang waits until the call ends or the fault is cleared.
func Hang() Effect {
	return func(ctx context.Context, v *FaultTarget) error { return v.wait(ctx, nil) }
}

func (v *FaultTarget) wait(ctx context.Context, enough <-chan time.Time) error {
	select {
	case <-enough:
	case <-v.fault.cleared:
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	return nil
}

// Fail answers with a gRPC status.
func Fail(code codes.Code, msg string) Effect {
	return func(context.Context, *FaultTarget) error { return status.Error(code, msg) }
}

// Kill resets the connection of the call.
func Kill() Effect {
	return func(_ context.Context, v *FaultTarget) error {
		v.conn.Cut()
		return status.Error(codes.Unavailable, "testserver: connection killed")
	}
}

// Freeze makes the connection of the call a black hole. The call goes on.
func Freeze() Effect {
	return func(_ context.Context, v *FaultTarget) error {
		v.conn.Freeze()
		return nil
	}
}

// GoAway tells the connection of the call to take no new calls. Those under
// way go on, and the connection closes after them.
func GoAway() Effect {
	return func(_ context.Context, v *FaultTarget) error {
		v.conn.goAway()
		return nil
	}
}

// Evict is Faults.EvictSessions at that moment.
func Evict() Effect {
	return func(_ context.Context, v *FaultTarget) error {
		v.fault.faults.EvictSessions()
		return nil
	}
}

// Do runs f, for whatever else a test wants to happen at that moment.
func Do(f func()) Effect {
	return func(context.Context, *FaultTarget) error {
		f()
		return nil
	}
}

// Rewrite changes the reply before it is sent, in faults that strike After and
// OnBatch. Replies of another type are left alone. M is a message of the Flight
// protocol: *flight.FlightInfo, *flight.FlightData (OnDoGet for the schema, OnBatch for
// batches), *flight.Result, *flight.PutResult, *flight.ActionType.
func Rewrite[M any](change func(M)) Effect {
	return func(_ context.Context, v *FaultTarget) error {
		if m, ok := v.reply.(M); ok {
			change(m)
		}
		return nil
	}
}

// Effects carries out several effects in turn, until one fails.
func Effects(all ...Effect) Effect {
	return func(ctx context.Context, v *FaultTarget) error {
		for _, do := range all {
			if err := do(ctx, v); err != nil {
				return err
			}
		}
		return nil
	}
}

// Wrong replies of GetFlightInfo (After) that have been seen, or could be.
var (
	NoEndpoints = Rewrite(func(i *flight.FlightInfo) { i.Endpoint = nil })
	NoSchema    = Rewrite(func(i *flight.FlightInfo) { i.Schema = nil })
	BadSchema   = Rewrite(func(i *flight.FlightInfo) { i.Schema = []byte("not a schema") })
	NilTickets  = Rewrite(func(i *flight.FlightInfo) {
		for _, e := range i.Endpoint {
			e.Ticket = nil
		}
	})
	NilEndpoints = Rewrite(func(i *flight.FlightInfo) { clear(i.Endpoint) })
	BadTickets   = Rewrite(func(i *flight.FlightInfo) {
		for _, e := range i.Endpoint {
			e.Ticket = &flight.Ticket{Ticket: []byte("not a ticket")}
		}
	})
)

// OtherSchema replaces the schema by a valid one of another result: in a
// FlightInfo (OnGetFlightInfo, After) or in a stream (OnDoGet, After).
func OtherSchema() Effect {
	other := flight.SerializeSchema(arrow.NewSchema([]arrow.Field{{Name: "other", Type: arrow.FixedWidthTypes.Date32}}, nil), memory.DefaultAllocator)
	return Effects(
		Rewrite(func(i *flight.FlightInfo) { i.Schema = other }),
		Rewrite(func(d *flight.FlightData) { d.DataHeader = unframe(other) }),
	)
}

// unframe takes the message out of its frame: a mark of 4 bytes, its length
// in 4, itself, and more.
func unframe(framed []byte) []byte {
	return framed[8 : 8+binary.LittleEndian.Uint32(framed[4:])]
}

// Wrong messages of DoGet: OnBatch, or OnDoGet for the schema.
var (
	TruncatedHeader = Rewrite(func(d *flight.FlightData) { d.DataHeader = d.DataHeader[:len(d.DataHeader)/2] })
	TruncatedBody   = Rewrite(func(d *flight.FlightData) { d.DataBody = d.DataBody[:len(d.DataBody)/2] })
)
