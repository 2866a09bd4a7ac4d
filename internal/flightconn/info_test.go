package flightconn

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// manyEndpoints is a FlightInfo of n endpoints of the ticket "t", with the given
// fields beside it.
func manyEndpoints(n int, more []byte) []byte {
	endpoint := append(submessage(fieldEndpointTicket, submessage(1, []byte("t"))), more...)
	out := marshal(answer(int64Schema))
	for range n {
		out = append(out, submessage(fieldInfoEndpoint, endpoint)...)
	}
	return out
}

// heapHeld is what the heap holds more after f than before it, while what f
// returns is kept.
func heapHeld(f func() any) int64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	kept := f()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(kept)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}

// TestAResultOfManyEndpointsCostsItsBytes opens a result of 200,000 endpoints
// or locations, in the smallest messages that say so.
func TestAResultOfManyEndpointsCostsItsBytes(t *testing.T) {
	const n = 200_000
	in := func(d time.Duration) []byte {
		return submessage(fieldEndpointExpiration, marshal(timestamppb.New(time.Now().Add(d))))
	}
	for name, info := range map[string][]byte{
		"endpoints":          manyEndpoints(n, nil),
		"endpoints, empty":   append(manyEndpoints(8, nil), []byte(strings.Repeat("\x1a\x00", n))...),
		"that expire":        manyEndpoints(n, in(time.Hour)),
		"locations":          manyEndpoints(2, []byte(strings.Repeat("\x12\x00", n/2))),
		"fields not known":   append(manyEndpoints(2, nil), []byte(strings.Repeat("\x78\x00", n))...),
		"schemas, last wins": append([]byte(strings.Repeat("\x0a\x00", n)), manyEndpoints(2, nil)...),
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{Address: here, Allocator: memory.DefaultAllocator, Prefetch: 4, MaxMessage: DefaultMaxMessage, RequestLimit: DefaultRequestLimit}
			c := answering(cfg, &scriptedServer{info: info, data: encoded(t)})
			held := heapHeld(func() any {
				s, err := c.Query(t.Context(), "q", backend.Call{})
				require.NoError(t, err)
				t.Cleanup(s.Close)
				return s
			})
			t.Logf("%d bytes hold %d", len(info), held)
			// Those that are renewed are 65,536 at most.
			require.Less(t, held, int64(2*len(info)+16<<20))
			if name == "endpoints" {
				require.Less(t, held/n, int64(2*len(info)/n+8), "bytes for each endpoint")
			}
		})
	}
}

// TestAnInfoIsReadAsItsMessage compares with the decoder of protobuf.
func TestAnInfoIsReadAsItsMessage(t *testing.T) {
	at := time.Now().Add(time.Minute)
	message := answer(int64Schema, "a", "b")
	message.FlightDescriptor = &pb.FlightDescriptor{Cmd: []byte("cmd")}
	message.AppMetadata = []byte("more")
	message.Endpoint[1].ExpirationTime = timestamppb.New(at)
	message.Endpoint[1].AppMetadata = []byte("of it")
	message.Endpoint[1].Location = []*pb.Location{{Uri: "grpc://a:1"}, {}}
	message.Endpoint = append(message.Endpoint, &pb.FlightEndpoint{})
	in, err := newInfo(marshal(message))
	require.NoError(t, err)
	require.Equal(t, message.GetSchema(), in.Schema())
	require.Equal(t, 3, in.Len())
	got, err := in.Endpoints()
	require.NoError(t, err)
	for i, e := range got {
		want := message.GetEndpoint()[i]
		require.Equal(t, want.GetTicket().GetTicket(), e.ticketBody(), i)
		require.Equal(t, want.GetTicket() == nil, e.ticket == nil)
		require.Equal(t, marshal(want), e.encoded)
		require.Len(t, e.locations, len(want.GetLocation()))
		for j, l := range want.GetLocation() {
			require.Equal(t, l.GetUri(), e.locations[j])
		}
		if want.GetExpirationTime() == nil {
			require.True(t, e.expires.IsZero())
			require.True(t, expiryOf(e.encoded).IsZero())
		} else {
			require.True(t, at.Equal(e.expires), "%v", e.expires)
			require.True(t, at.Equal(expiryOf(e.encoded)))
		}
	}
	first, err := in.first()
	require.NoError(t, err)
	require.Equal(t, []byte("a"), first.ticketBody())
}

// TestAnEndpointThatIsNoMessageIsAnError has endpoints that protobuf refuses,
// alone and after another: the result fails, never ends short.
func TestAnEndpointThatIsNoMessageIsAnError(t *testing.T) {
	good := submessage(fieldInfoEndpoint, submessage(fieldEndpointTicket, submessage(1, []byte("t"))))
	for name, bad := range map[string][]byte{
		"no field":            {0xff},
		"a field cut off":     {0x0a, 0x05, 0x01},
		"a varint cut off":    {0x78, 0x80},
		"a ticket cut off":    submessage(fieldEndpointTicket, []byte{0x0a, 0x05}),
		"a location cut off":  append(submessage(fieldEndpointTicket, nil), submessage(fieldEndpointLocation, []byte{0x0a, 0x05})...),
		"an expiry cut off":   append(submessage(fieldEndpointTicket, nil), submessage(fieldEndpointExpiration, []byte{0x08})...),
		"a ticket of another": protowire.AppendVarint(protowire.AppendTag(nil, fieldEndpointTicket, protowire.VarintType), 1),
	} {
		for _, before := range []int{0, 1, 20} {
			t.Run(fmt.Sprint(name, " after ", before), func(t *testing.T) {
				info := []byte(strings.Repeat(string(good), before))
				info = append(info, submessage(fieldInfoEndpoint, bad)...)
				cfg := Config{Address: here, Allocator: memory.DefaultAllocator, Prefetch: 1, MaxMessage: 1 << 20, RequestLimit: DefaultRequestLimit}
				c := answering(cfg, &scriptedServer{info: info, data: encoded(t)})
				rows, err := 0, error(nil)
				s, err := c.Query(t.Context(), "q", backend.Call{})
				for err == nil {
					if _, err = s.Next(); err == nil {
						rows++
					}
				}
				require.ErrorIs(t, err, errMalformed)
				require.Equal(t, backend.FaultUnknown, failure(t, err).Fault)
				require.LessOrEqual(t, rows, before)
			})
		}
	}
}

// TestOfManyLocationsTheFirstAreKept names more locations than are kept.
func TestOfManyLocationsTheFirstAreKept(t *testing.T) {
	message := &pb.FlightEndpoint{Ticket: &pb.Ticket{Ticket: []byte("t")}}
	for i := range maxKeptLocations + 10 {
		message.Location = append(message.Location, &pb.Location{Uri: fmt.Sprintf("grpc://elsewhere:%d", i+1)})
	}
	e, err := decodeEndpoint(marshal(message))
	require.NoError(t, err)
	require.Len(t, e.locations, maxKeptLocations)
	require.Equal(t, 10, e.dropped)
	info := marshal(&pb.FlightInfo{Endpoint: []*pb.FlightEndpoint{message}})
	n := network{}
	cfg, err := Config{Address: here, Dialer: n.dial}.resolve()
	require.NoError(t, err)
	c := answering(cfg, &scriptedServer{info: info})
	c.endpoint.locations.cfg = &c.endpoint.cfg
	t.Cleanup(c.endpoint.locations.close)
	_, err = c.Query(t.Context(), "q", backend.Call{})
	require.ErrorContains(t, err, fmt.Sprintf("%d more were not tried", maxKeptLocations+10-maxTriedLocations))
}

func TestWhatIsNoFlightInfoIsAnError(t *testing.T) {
	for _, data := range []string{"\xff", "\x0a", "\x0a\x05x", "\x08", "\x0d\x00"} {
		_, err := newInfo([]byte(data))
		require.ErrorIs(t, err, errMalformed, "%q", data)
	}
	in, err := newInfo([]byte("\x08\x01\x1a\x00\x1a\x01\xff")) // an unknown field, an empty endpoint, and one that is none
	require.NoError(t, err)
	require.Equal(t, 2, in.Len())
	_, err = in.Endpoints()
	require.ErrorIs(t, err, errMalformed)
	in, err = newInfo(marshal(answer(int64Schema, "a", "b")))
	require.NoError(t, err)
	all, err := in.Endpoints()
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, "b", string(all[1].ticketBody()))
}
