package session

import (
	"context"
	"fmt"
	"maps"
	"reflect"
)

// SetOption sets an option of the Flight session, such as the catalogue. What
// was there before is put back when the handle is closed. Values are strings,
// bools, int64, float64 and []string; nil erases. Servers without session
// options fail it with FaultUnsupported.
func (s *SessionHandle) SetOption(ctx context.Context, key string, value any) error {
	c, err := s.begin(ctx, "SetOption", QueryOptions{}, brief)
	if err != nil {
		return err
	}
	c.ready = func(ctx context.Context) error { return s.proveSession(ctx, risks) }
	return do(c, func(ctx context.Context) error {
		s.mu.Lock()
		_, known := s.mu.dirt.options[key]
		s.mu.Unlock()
		if !known {
			before, err := s.conn.Options(ctx)
			if err != nil {
				return err
			}
			if err := s.rememberPlace(ctx); err != nil {
				return err
			}
			s.mu.Lock()
			kept := maps.Clone(s.mu.dirt.options)
			if kept == nil {
				kept = make(map[string]any)
			}
			kept[key] = before[key] // nil, to erase, when it was not set
			s.mu.dirt.options = kept
			s.mu.Unlock()
		}
		return s.conn.SetOptions(ctx, map[string]any{key: value})
	}, errorOnly)
}

// Options are the options of the Flight session as the server tells them.
func (s *SessionHandle) Options(ctx context.Context) (map[string]any, error) {
	c, err := s.begin(ctx, "Options", QueryOptions{}, cutShort)
	if err != nil {
		return nil, err
	}
	return perform(c, s.conn.Options, plainly)
}

// putOptionsBack sets the options to what they were before, and compares them.
func (s *SessionHandle) putOptionsBack(ctx context.Context, before map[string]any) error {
	if err := s.conn.SetOptions(ctx, before); err != nil {
		return err
	}
	now, err := s.conn.Options(ctx)
	if err != nil {
		return err
	}
	for key, value := range before {
		if !reflect.DeepEqual(now[key], value) {
			return fmt.Errorf("%s is not what it was", key)
		}
	}
	return nil
}
