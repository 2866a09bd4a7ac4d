package flightconn

import (
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
