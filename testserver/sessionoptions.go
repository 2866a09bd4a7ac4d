package testserver

import (
	"context"
	"maps"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// SetSessionOptions keeps options by name. A value that is not set erases.
func (h *handlers) SetSessionOptions(ctx context.Context, r *flight.SetSessionOptionsRequest) (*flight.SetSessionOptionsResult, error) {
	sess := callOf(ctx).sess
	sess.touch()
	result := &flight.SetSessionOptionsResult{Errors: map[string]*flight.SetSessionOptionsResultError{}}
	sess.mu.Lock()
	defer sess.mu.Unlock()
	for name, value := range r.GetSessionOptions() {
		switch {
		case name == "":
			result.Errors[name] = &flight.SetSessionOptionsResultError{Value: flight.SetSessionOptionsResultErrorInvalidName}
		case value.GetOptionValue() == nil:
			delete(sess.mu.options, name)
		default:
			sess.mu.options[name] = value
		}
	}
	return result, nil
}

func (h *handlers) GetSessionOptions(ctx context.Context, _ *flight.GetSessionOptionsRequest) (*flight.GetSessionOptionsResult, error) {
	c := callOf(ctx)
	if h.srv.sessions.wasEvicted(c.key) {
		return nil, status.Error(h.srv.profile.EvictedCode, "session does not exist any more")
	}
	sess, err := h.srv.sessions.open(ctx, c.key, c.conn)
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
	sess := h.srv.sessions.peek(callOf(ctx).key)
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
