package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flightpool/flightpool/cancel"
	"github.com/flightpool/flightpool/flightpool"
)

// subject is a running server and the pool on it.
type subject struct {
	p       *product
	cfg     config
	dir     string
	server  *server
	used    bool // for a feature, since its start
	pool    *flightpool.FlightSQLPool
	reports chan cancel.Report
}

// start starts the server, at addr or anywhere, and waits until it answers.
func (s *subject) start(ctx context.Context, addr string) (err error) {
	if addr == "" {
		if addr, err = freeAddr(); err != nil {
			return err
		}
	}
	started, err := s.p.start(ctx, s.cfg, addr, s.dir)
	if err != nil {
		return err
	}
	s.server = started
	return s.prepare(ctx)
}

// prepare waits until the server answers, whose port is open before its
// database is, and makes what the product's statements need.
func (s *subject) prepare(ctx context.Context) error {
	limit, stop := context.WithTimeout(ctx, startTime)
	defer stop()
	var c client
	var err error
	for {
		if c, err = newBareClient(limit, s.p, s.server.addr); err == nil {
			if _, err = c.query(limit, s.p.values, nil); err == nil {
				break
			}
			_ = c.close(limit) // the next try makes another one
		}
		if limit.Err() != nil {
			return fmt.Errorf("%s does not answer: %w", s.p.name, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	for _, sql := range s.p.setup {
		if err = c.update(limit, sql, nil); err != nil {
			break
		}
	}
	return errors.Join(err, c.close(limit))
}

func (s *subject) connect(ctx context.Context) (*flightpool.FlightSQLPool, error) {
	return s.p.pool(ctx, s.server.addr, flightpool.Config{MaxSize: poolSize, Hooks: flightpool.Hooks{
		Cancelled: func(_ string, r cancel.Report) {
			select {
			case s.reports <- r:
			default: // nobody looks at so many
			}
		},
	}})
}

// fresh replaces a fragile server that may have refused something: a feature, or a question of the pool's own.
func (s *subject) fresh(ctx context.Context) error {
	if !s.p.fragile || !s.used {
		return nil
	}
	return s.replace(ctx)
}

// replace kills the server, starts it at the same address and waits until the
// pool serves again.
func (s *subject) replace(ctx context.Context) error {
	addr := s.server.addr
	s.server.kill()
	s.used = false
	if err := s.start(ctx, addr); err != nil {
		return err
	}
	return s.serves(ctx)
}

// again makes sure that the pool still serves.
func (s *subject) again(ctx context.Context) error {
	_, err := s.count(ctx, s.p.values)
	return err
}
