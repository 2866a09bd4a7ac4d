package session

import (
	"context"
	"maps"
)

// SetOption sets an option of the Flight session, such as the catalogue. What
// was there before is put back when the handle is closed. Values are strings,
// bools, int64, float64 and []string; nil erases. Servers without session
// options fail it with FaultUnsupported.
func (s *SessionHandle) SetOption(ctx context.Context, key string, value any) error {
	c, err := s.begin(ctx, "SetOption", QueryOptions{}, true)
	if err != nil {
		return err
	}
	_, err = do(c, func(ctx context.Context) (struct{}, error) {
		s.mu.Lock()
		_, known := s.mu.dirt.options[key]
		s.mu.Unlock()
		if !known {
			before, err := s.conn.Options(ctx)
			if err != nil {
				return struct{}{}, err
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
		return struct{}{}, s.conn.SetOptions(ctx, map[string]any{key: value})
	}, func(_ struct{}, err error) { _ = c.end(err) })
	return c.end(err)
}

// Options are the options of the Flight session as the server tells them.
func (s *SessionHandle) Options(ctx context.Context) (map[string]any, error) {
	c, err := s.begin(ctx, "Options", QueryOptions{}, false)
	if err != nil {
		return nil, err
	}
	opts, err := s.conn.Options(c.rpc)
	return opts, c.end(err)
}
