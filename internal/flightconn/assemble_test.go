package flightconn

import (
	"bytes"
	"math/rand/v2"
	"testing"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// assembled is what a dataReceiver makes of a message that comes in pieces.
func assembled(r *dataReceiver, data []byte, piece func(left int) int) (*dataMessage, error) {
	r.Start(len(data))
	for len(data) > 0 {
		n := piece(len(data))
		r.Write(data[:n])
		data = data[n:]
	}
	m, err := r.Finish()
	if err != nil {
		return nil, err
	}
	var into dataMessage
	return &into, r.Deliver(m, &into)
}

// randomData is a FlightData as servers send it, or nearly.
func randomData(r *rand.Rand) []byte {
	some := func() []byte { return bytes.Repeat([]byte{byte(r.Uint32())}, r.IntN(1<<r.IntN(12))) }
	var out []byte
	for range r.IntN(5) {
		switch r.IntN(8) {
		case 0:
			out = append(out, marshal(&pb.FlightData{FlightDescriptor: &pb.FlightDescriptor{Cmd: some()}})...)
		case 1:
			out = protowire.AppendVarint(protowire.AppendTag(out, protowire.Number(1+r.IntN(2000)), protowire.VarintType), r.Uint64())
		case 2:
			out = append(out, marshal(&pb.FlightData{AppMetadata: some()})...)
		case 3, 4:
			out = append(out, marshal(&pb.FlightData{DataHeader: some()})...)
		default:
			out = append(out, marshal(&pb.FlightData{DataBody: some()})...)
		}
	}
	if len(out) > 0 && r.IntN(3) == 0 {
		out[r.IntN(min(len(out), 12))] = byte(r.Uint32())
	}
	if r.IntN(6) == 0 {
		out = out[:r.IntN(len(out)+1)]
	}
	return out
}

// A message is the same whether it is made where it comes or of the whole, in whichever pieces.
func TestWhatIsAssembledIsWhatIsDecoded(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	receiver := &dataReceiver{}
	for range 20_000 {
		data := randomData(r)
		var want dataMessage
		wantErr := want.decode(mem.BufferSlice{mem.SliceBuffer(bytes.Clone(data))})
		most := 1 + r.IntN(1<<r.IntN(12))
		got, err := assembled(receiver, data, func(left int) int { return 1 + r.IntN(min(left, most)) })
		require.Equal(t, wantErr == nil, err == nil, "%x: %v, %v", data, wantErr, err)
		if err != nil {
			continue
		}
		require.True(t, bytes.Equal(want.header, got.header), "%x", data)
		require.True(t, bytes.Equal(want.bodyBytes(), got.bodyBytes()), "%x", data)
		want.release()
		got.release()
	}
}

// What a server announces takes no memory before it comes.
func TestABodyThatIsAnnouncedTakesNoMemory(t *testing.T) {
	const size = 1 << 30
	head := protowire.AppendVarint(protowire.AppendVarint(nil, tagBody), size)
	r := &dataReceiver{}
	r.Start(len(head) + size)
	r.Write(head)
	require.LessOrEqual(t, r.message.body.Len(), eagerBody)
	sent := 0
	for sent < 3*eagerBody {
		r.Write(make([]byte, 1<<20))
		sent += 1 << 20
		require.LessOrEqual(t, r.message.body.Len(), max(eagerBody, bodyGrowth*sent))
	}
}

// A stream that has had much is not made to copy the next.
func TestALargeBodyIsNotCopiedAgainAndAgain(t *testing.T) {
	r := &dataReceiver{}
	data := marshal(&pb.FlightData{DataBody: make([]byte, 3*eagerBody)})
	for n := range 2 {
		r.Start(len(data))
		r.Write(data[:100])
		require.Equal(t, n == 1, r.message.body.Len() == 3*eagerBody)
		r.Write(data[100:])
		m, err := r.Finish()
		require.NoError(t, err)
		m.(*dataMessage).release()
	}
}

// A body that is larger than what is taken at first is whole.
func TestALargeBody(t *testing.T) {
	for _, size := range []int{eagerBody - 1, eagerBody, eagerBody + 1, 5*eagerBody + 3} {
		want := make([]byte, size)
		for i := range want {
			want[i] = byte(i * 7 >> 3)
		}
		data := marshal(&pb.FlightData{DataHeader: []byte("h"), DataBody: want})
		m, err := assembled(&dataReceiver{}, data, func(left int) int { return min(left, 100_003) })
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, m.bodyBytes()))
		require.Zero(t, misalignment(m.bodyBytes()))
		m.release()
	}
}
