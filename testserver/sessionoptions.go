package testserver

import (
	"context"
	"maps"
	"slices"

	"github.com/apache/arrow-go/v18/arrow/flight"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// OptionSetter is an engine.Session that obeys session options. The Server keeps
// them whether or not it does.
type OptionSetter interface {
	// SetOption gives an option a value, or takes it back if that is empty. It
	// returns nil for options that it does not know, and an error for a value
	// that it refuses.
	SetOption(ctx context.Context, name, value string) error
}

// SetSessionOptions keeps options by name, in the order of their names. A value
// that is not set erases.
func (h *handlers) SetSessionOptions(ctx context.Context, r *flight.SetSessionOptionsRequest) (*flight.SetSessionOptionsResult, error) {
	sess := callOf(ctx).sess
	sess.restartTTL()
	result := &flight.SetSessionOptionsResult{Errors: map[string]*flight.SetSessionOptionsResultError{}}
	for _, name := range slices.Sorted(maps.Keys(r.GetSessionOptions())) {
		value := r.GetSessionOptions()[name]
		if name == "" {
			result.Errors[name] = &flight.SetSessionOptionsResultError{Value: flight.SetSessionOptionsResultErrorInvalidName}
			continue
		}
		obeyed, err := sess.applyOption(ctx, name, value)
		if err != nil {
			return nil, err
		}
		if !obeyed {
			result.Errors[name] = &flight.SetSessionOptionsResultError{Value: flight.SetSessionOptionsResultErrorInvalidValue}
			continue
		}
		sess.keepOption(name, value)
	}
	return result, nil
}

// applyOption has the engine follow an option. It returns false when the engine
// refuses the value.
func (s *session) applyOption(ctx context.Context, name string, value *flight.SessionOptionValue) (obeyed bool, err error) {
	setter, ok := s.engine.(OptionSetter)
	if _, isText := value.GetOptionValue().(*pb.SessionOptionValue_StringValue); !ok || !isText && value.GetOptionValue() != nil {
		return true, nil
	}
	err = s.withEngineLock(ctx, func() error {
		obeyed = setter.SetOption(ctx, name, value.GetStringValue()) == nil
		return nil
	})
	return obeyed, err
}

func (s *session) keepOption(name string, value *flight.SessionOptionValue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if value.GetOptionValue() == nil {
		delete(s.mu.options, name)
	} else {
		s.mu.options[name] = value
	}
}

func (h *handlers) GetSessionOptions(ctx context.Context, _ *flight.GetSessionOptionsRequest) (*flight.GetSessionOptionsResult, error) {
	c := callOf(ctx)
	if h.srv.sessions.wasEvicted(c.sessionKey) {
		return nil, status.Error(h.srv.profile.EvictedCode, "session does not exist any more")
	}
	sess, err := h.srv.sessions.open(ctx, c.sessionKey, c.conn)
	if err != nil {
		return nil, err
	}
	sess.mu.Lock()
	defer sess.mu.Unlock()
	return &flight.GetSessionOptionsResult{SessionOptions: maps.Clone(sess.mu.options)}, nil
}

// CloseSession ends the caller's session with what runs in it, and answers
// when it is gone. The connection lives on; its next RPC gets a new session.
func (h *handlers) CloseSession(ctx context.Context, _ *flight.CloseSessionRequest) (*flight.CloseSessionResult, error) {
	sess := h.srv.sessions.find(callOf(ctx).sessionKey)
	if sess == nil {
		return nil, status.Error(codes.NotFound, "no session")
	}
	select {
	case <-h.srv.sessions.close(sess):
		return &flight.CloseSessionResult{Status: flight.CloseSessionResultClosed}, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}
