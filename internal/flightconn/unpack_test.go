package flightconn

import (
	"testing"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// unpack reads a message that is packed in an Any.
func unpack(data []byte, m proto.Message) error {
	var packed anypb.Any
	if err := proto.Unmarshal(data, &packed); err != nil {
		return err
	}
	return packed.UnmarshalTo(m)
}

// pack packs a message in an Any.
func pack(m proto.Message) []byte {
	var packed anypb.Any
	if err := packed.MarshalFrom(m); err != nil {
		panic(err)
	}
	data, err := proto.Marshal(&packed)
	if err != nil {
		panic(err)
	}
	return data
}

func marshal(m proto.Message) []byte {
	data, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return data
}

func unmarshal(data []byte, m proto.Message) error { return proto.Unmarshal(data, m) }

func TestAnAnyIsEncodedAsProtobufDoes(t *testing.T) {
	for _, m := range []proto.Message{&pb.CommandGetCatalogs{}, &pb.CommandStatementQuery{Query: "q", TransactionId: []byte("t")}, &pb.CommandStatementQuery{Query: string(make([]byte, 1000))}} {
		got, err := packAny(m)
		require.NoError(t, err)
		require.Equal(t, pack(m), got)
	}
	_, err := packAny(&pb.CommandStatementQuery{Query: "\xff"})
	require.Error(t, err, "no UTF-8")
}
