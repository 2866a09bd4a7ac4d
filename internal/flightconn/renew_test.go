package flightconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/cancel"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// forgetful is a server that keeps each part of a result for a while only.
type forgetful struct {
	mu      sync.Mutex
	ttl     time.Duration
	until   map[string]time.Time
	renewed int
	refuse  error // of renewals
}

const partsOfResult = parallelEndpoints + 4

// plan makes a result of which each part has one row.
func (s *forgetful) plan() *pb.FlightInfo {
	s.until = map[string]time.Time{}
	info := answer(int64Schema)
	for i := range partsOfResult {
		info.Endpoint = append(info.Endpoint, s.endpoint(fmt.Sprint(i)))
	}
	return info
}

func (s *forgetful) endpoint(ticket string) *pb.FlightEndpoint {
	at := time.Now().Add(s.ttl)
	s.until[ticket] = at
	return &pb.FlightEndpoint{Ticket: &pb.Ticket{Ticket: []byte(ticket)}, ExpirationTime: timestamppb.New(at)}
}

func (s *forgetful) get(k *pb.Ticket, stream pb.FlightService_DoGetServer) error {
	s.mu.Lock()
	at, known := s.until[string(k.GetTicket())]
	s.mu.Unlock()
	if !known || time.Now().After(at) {
		return status.Errorf(codes.NotFound, "ticket %q is not here any more", k.GetTicket())
	}
	var n int
	_, _ = fmt.Sscan(string(k.GetTicket()), &n)
	return sendValues(stream, n, n+1)
}

// renew gives another ticket, the old one is not good any more.
func (s *forgetful) renew(a *pb.Action, stream pb.FlightService_DoActionServer) error {
	if a.GetType() != "RenewFlightEndpoint" {
		return status.Error(codes.Unimplemented, "no such action")
	}
	var req pb.RenewFlightEndpointRequest
	if err := proto.Unmarshal(a.GetBody(), &req); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renewed++
	if s.refuse != nil {
		return s.refuse
	}
	old := string(req.GetEndpoint().GetTicket().GetTicket())
	if time.Now().After(s.until[old]) {
		return status.Error(codes.NotFound, "too late")
	}
	delete(s.until, old)
	body, err := proto.Marshal(s.endpoint(old + " "))
	if err != nil {
		return err
	}
	return stream.Send(&pb.Result{Body: body})
}

// onShelf reads the first part of a result, pauses, and reads the rest.
func onShelf(t *testing.T, s *forgetful, pause time.Duration, test func(b *bubble, got []int64, err error)) {
	f := &fake{get: s.get, action: s.renew}
	inBubble(t, f, func(b *bubble) {
		f.info = infoOf(s.plan())
		st, err := b.open().Query(b.Context(), "q", backend.Call{})
		require.NoError(b, err)
		defer st.Close()
		var got []int64
		for err == nil {
			var batch interface{ NumRows() int64 }
			rows, e := st.Next()
			if batch, err = rows, e; err == nil && batch.NumRows() > 0 {
				got = append(got, rows.Column(0).(*array.Int64).Int64Values()...)
			}
			if len(got) == 1 {
				time.Sleep(pause)
			}
		}
		st.Close()
		synctest.Wait()
		test(b, got, err)
	})
}

func TestPartsThatWaitToBeReadAreRenewedBeforeTheyExpire(t *testing.T) {
	s := &forgetful{ttl: time.Minute}
	onShelf(t, s, 10*time.Minute, func(b *bubble, got []int64, err error) {
		require.ErrorIs(b, err, io.EOF)
		require.Equal(b, upTo(partsOfResult), got)
		// Four parts waited, each renewed 20 s before its end, every 40 s.
		require.InDelta(b, 4*600/40, s.renewed, 4)
		renewed := s.renewed
		time.Sleep(time.Hour)
		require.Equal(b, renewed, s.renewed, "nothing is renewed after the end")
	})
}

func TestAResultGivenUpIsNotRenewedAnyMore(t *testing.T) {
	s := &forgetful{ttl: time.Minute}
	f := &fake{get: s.get, action: s.renew}
	inBubble(t, f, func(b *bubble) {
		f.info = infoOf(s.plan())
		st, err := b.open().Query(b.Context(), "q", backend.Call{})
		require.NoError(b, err)
		time.Sleep(time.Minute)
		st.Close()
		synctest.Wait()
		renewed := s.renewed
		require.Positive(b, renewed)
		time.Sleep(time.Hour)
		require.Equal(b, renewed, s.renewed)
	})
}

func TestAPartThatExpiredSaysSo(t *testing.T) {
	for name, tc := range map[string]struct {
		refuse error
		tries  int
	}{
		"no renewals": {status.Error(codes.Unimplemented, "what renewal?"), 2}, // and never again
		"refused":     {status.Error(codes.Internal, "not now"), 4 * 5},        // at 40, 50, 55, 57.5 and 58.75 s
	} {
		s := &forgetful{ttl: time.Minute, refuse: tc.refuse}
		onShelf(t, s, 10*time.Minute, func(b *bubble, got []int64, err error) {
			require.ErrorIs(b, err, backend.ErrEndpointExpired, name)
			require.ErrorContains(b, err, "9m0s late", name)
			require.ErrorContains(b, err, "not here any more", "%s: the server's words are kept", name)
			require.True(b, failure(b, err).Fault.KeepsConn(), name)
			require.Equal(b, upTo(parallelEndpoints), got, "%s: what was being read is", name)
			require.Equal(b, tc.tries, s.renewed, name)
		})
	}
}

func TestAnExpiryInThePastAsksTheServerAllTheSame(t *testing.T) {
	s := &forgetful{ttl: time.Minute}
	f := &fake{get: s.get, action: s.renew}
	inBubble(t, f, func(b *bubble) {
		info := s.plan()
		for _, e := range info.Endpoint { // the server's clock is an hour behind ours
			e.ExpirationTime = timestamppb.New(time.Now().Add(-time.Hour))
		}
		f.info = infoOf(info)
		st, err := b.open().Query(b.Context(), "q", backend.Call{})
		require.NoError(b, err)
		require.Equal(b, upTo(partsOfResult), values(b, st))
	})
}

// What was renewed takes memory of its own, which is bounded and given back.
func TestRenewedPartsTakeNoMoreRoomThanThereIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		later := time.Now().Add(time.Hour)
		ticket := func(size int) []byte { // an endpoint of so many bytes
			e := marshal(&pb.FlightEndpoint{Ticket: &pb.Ticket{Ticket: make([]byte, size-4)}})
			require.Len(t, e, size)
			return e
		}
		a, b := &pendingEndpoint{number: 0, encoded: ticket(10), due: later}, &pendingEndpoint{number: 1, encoded: ticket(10), due: later.Add(time.Second)}
		s := &renewal{}
		s.mu.bytesLeft, s.mu.due, s.mu.pending = 100, renewalHeap{a, b}, map[int]*pendingEndpoint{0: a, 1: b}
		original := &FlightEndpoint{}
		put := func(w *pendingEndpoint, size, reserve int, taken bool) {
			t.Helper()
			got, _ := s.next()
			require.Same(t, w, got, "the first that is due")
			require.True(t, s.startRenewing(w))
			s.finishRenewing(w, ticket(size), later, w.due.Add(time.Minute))
			require.Equal(t, reserve, s.mu.bytesLeft)
			require.Equal(t, taken, len(w.encoded) == size)
		}
		put(a, 60, 40, true)
		put(b, 41, 40, false)
		put(a, 101, 40, false)
		put(b, 40, 0, true)
		put(a, 60, 0, true)
		put(b, 30, 10, true)
		put(a, 70, 0, true)

		got, _ := s.next()
		require.Same(t, b, got)
		require.True(t, s.startRenewing(b))
		took := make(chan *FlightEndpoint)
		go func() { e, _ := s.takeEndpoint(t.Context(), 1, original); took <- e }()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.takeEndpoint(ctx, 1, original)
		require.ErrorIs(t, err, context.Canceled, "it is being renewed")
		synctest.Wait()
		s.finishRenewing(b, nil, later, later)
		require.Len(t, (<-took).ticketBody(), 26, "as it was renewed last")
		require.Equal(t, 30, s.mu.bytesLeft)
		require.False(t, s.startRenewing(b), "it was taken")
		again, err := s.takeEndpoint(t.Context(), 1, original)
		require.NoError(t, err)
		require.Same(t, original, again)
		_, err = s.takeEndpoint(t.Context(), 0, original)
		require.NoError(t, err)
		require.Equal(t, 100, s.mu.bytesLeft)
		got, _ = s.next()
		require.Nil(t, got, "all were taken")
	})
}

func TestAFailureAfterTheExpirySaysSo(t *testing.T) {
	cause := errors.New("not here any more")
	for name, c := range map[string]struct {
		expires time.Time
		expired bool
	}{
		"never":   {time.Time{}, false},
		"in time": {time.Now().Add(time.Hour), false},
		"late":    {time.Now().Add(-time.Second), true},
	} {
		err := withExpiry(&FlightEndpoint{expires: c.expires}, cause)
		require.ErrorIs(t, err, cause, name)
		require.Equal(t, c.expired, errors.Is(err, backend.ErrEndpointExpired), name)
	}
}

// A server that renews by another ticket may know the statement by that alone.
func TestANameThatWasRenewedConfirmsNothing(t *testing.T) {
	s := &forgetful{ttl: time.Minute}
	f := &fake{get: s.get}
	f.action = func(a *pb.Action, stream pb.FlightService_DoActionServer) error {
		if a.GetType() != "CancelFlightInfo" {
			return s.renew(a, stream)
		}
		var req pb.CancelFlightInfoRequest
		if err := proto.Unmarshal(a.GetBody(), &req); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, e := range req.GetInfo().GetEndpoint() {
			if time.Now().Before(s.until[string(e.GetTicket().GetTicket())]) {
				return stream.Send(&pb.Result{Body: marshal(&pb.CancelFlightInfoResult{Status: pb.CancelStatus_CANCEL_STATUS_CANCELLED})})
			}
		}
		return status.Error(codes.NotFound, "no such query")
	}
	inBubble(t, f, func(b *bubble) {
		f.info = infoOf(s.plan())
		c, op := b.open(), &backend.Operation{}
		st, err := c.Query(b.Context(), "q", backend.Call{Op: op})
		require.NoError(b, err)
		defer st.Close()
		_, err = st.Next()
		require.NoError(b, err)
		require.Equal(b, cancel.Confirmed, do(b.Context(), c, op)["CancelFlightInfo"])
		time.Sleep(10 * time.Minute)
		s.mu.Lock()
		require.NotZero(b, s.renewed)
		s.mu.Unlock()
		require.Equal(b, cancel.Failed, do(b.Context(), c, op)["CancelFlightInfo"])
	})
}
