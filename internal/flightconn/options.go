package flightconn

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"

	"github.com/flightpool/flightpool/internal/errjoin"
)

// SetOptions is part of backend.Conn. Values are strings, booleans, integers,
// floats and lists of strings; nil takes an option back. A value that cannot be
// sent is found before anything is. The server judges each option by itself:
// where it refuses one, the others may be set, and the error names those that
// were refused.
func (c *Conn) SetOptions(ctx context.Context, opts map[string]any) error {
	ctx, r, err := c.begin(ctx, "SetOptions", nil)
	if err != nil {
		return err
	}
	defer r.end()
	values := make(map[string]*pb.SessionOptionValue, len(opts))
	var errs []error
	for name, value := range opts {
		if values[name], err = optionValue(value); err != nil {
			errs = append(errs, fmt.Errorf("option %q: %w", name, err))
		}
	}
	if len(errs) > 0 {
		return r.usageError("%w", errjoin.Join(errs...))
	}
	var reply pb.SetSessionOptionsResult
	err = c.rawAction(r.rpcContext(ctx), c.flight, flight.SetSessionOptionsActionType, &pb.SetSessionOptionsRequest{SessionOptions: values}, &reply)
	if err != nil {
		return r.wrapError(backend.StageExecute, err)
	}
	for name, refusal := range reply.GetErrors() {
		errs = append(errs, fmt.Errorf("option %q: %v", name, refusal.GetValue()))
	}
	if len(errs) > 0 {
		return r.newError(backend.StageExecute, backend.FaultStatement, errjoin.Join(errs...))
	}
	return nil
}

// Options is part of backend.Conn. An option without a value, and one of a kind
// that this version of Flight does not know, is left out.
func (c *Conn) Options(ctx context.Context) (map[string]any, error) {
	ctx, r, err := c.begin(ctx, "Options", nil)
	if err != nil {
		return nil, err
	}
	defer r.end()
	var reply pb.GetSessionOptionsResult
	err = c.rawAction(r.rpcContext(ctx), c.flight, flight.GetSessionOptionsActionType, &pb.GetSessionOptionsRequest{}, &reply)
	if err != nil {
		return nil, r.wrapError(backend.StageExecute, err)
	}
	opts := make(map[string]any, len(reply.GetSessionOptions()))
	for name, value := range reply.GetSessionOptions() {
		switch v := value.GetOptionValue().(type) {
		case *pb.SessionOptionValue_StringValue:
			opts[name] = v.StringValue
		case *pb.SessionOptionValue_BoolValue:
			opts[name] = v.BoolValue
		case *pb.SessionOptionValue_Int64Value:
			opts[name] = v.Int64Value
		case *pb.SessionOptionValue_DoubleValue:
			opts[name] = v.DoubleValue
		case *pb.SessionOptionValue_StringListValue_:
			opts[name] = v.StringListValue.GetValues()
		}
	}
	return opts, nil
}

// optionValue is a value as the message has it, or an error for a type that
// Flight has none for. All integers are sent as int64, and nil as a value that
// is not set, which erases the option. A list is copied.
func optionValue(value any) (*pb.SessionOptionValue, error) {
	integer := func(n int64) (*pb.SessionOptionValue, error) {
		return &pb.SessionOptionValue{OptionValue: &pb.SessionOptionValue_Int64Value{Int64Value: n}}, nil
	}
	switch v := value.(type) {
	case nil:
		return &pb.SessionOptionValue{}, nil
	case string:
		return &pb.SessionOptionValue{OptionValue: &pb.SessionOptionValue_StringValue{StringValue: v}}, nil
	case bool:
		return &pb.SessionOptionValue{OptionValue: &pb.SessionOptionValue_BoolValue{BoolValue: v}}, nil
	case float32:
		return optionValue(float64(v))
	case float64:
		return &pb.SessionOptionValue{OptionValue: &pb.SessionOptionValue_DoubleValue{DoubleValue: v}}, nil
	case []string:
		list := &pb.SessionOptionValue_StringListValue{Values: slices.Clone(v)}
		return &pb.SessionOptionValue{OptionValue: &pb.SessionOptionValue_StringListValue_{StringListValue: list}}, nil
	case int:
		return integer(int64(v))
	case int32:
		return integer(int64(v))
	case int64:
		return integer(v)
	case uint32:
		return integer(int64(v))
	case uint64:
		if v <= math.MaxInt64 {
			return integer(int64(v))
		}
		return nil, errors.New("an uint64 above the largest int64 cannot be sent")
	}
	return nil, fmt.Errorf("a value of type %T cannot be sent", value)
}
