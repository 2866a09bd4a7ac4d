package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
)

// unsupported tries everything that Sail 0.7 does not have.
func (s *sail) unsupported(ctx context.Context) (string, error) {
	params := numbers(7)
	defer params.Release()
	reader, err := array.NewRecordReader(params.Schema(), []arrow.RecordBatch{params})
	if err != nil {
		return "", err
	}
	defer reader.Release()
	p := s.pool
	h, err := p.AcquireSession(ctx)
	if err != nil {
		return "", err
	}
	table := "t"
	calls := []struct {
		name string
		call func() error
	}{
		{"changes", func() error { _, err := p.Update(ctx, "CREATE TABLE t (a INT)"); return err }},
		{"parameters", func() error { _, err := p.QueryWithParams(ctx, "SELECT ?", params); return err }},
		{"prepared statements", func() error { _, err := h.PrepareQuery(ctx, "SELECT 1"); return err }},
		{"transactions", func() error { return h.BeginTransaction(ctx) }},
		{"session options", func() error { _, err := h.Options(ctx); return err }},
		{"ingest", func() error { _, err := p.Ingest(ctx, "t", reader, flightpool.IngestOptions{}); return err }},
		{"catalogs", func() error { _, err := p.Catalogs(ctx); return err }},
		{"tables", func() error { _, err := p.Tables(ctx, flightpool.TableFilter{}); return err }},
		{"table types", func() error { _, err := p.TableTypes(ctx); return err }},
		{"keys", func() error { _, err := p.PrimaryKeys(ctx, flightpool.TableRef{Table: table}); return err }},
		{"SqlInfo", func() error { _, err := p.SQLInfo(ctx); return err }},
	}
	for _, c := range calls {
		if err := want(c.name, c.call(), backend.FaultUnsupported); err != nil {
			return "", errors.Join(err, h.Close())
		}
	}
	// The handle has met seven refusals, and is as good as before.
	if err := h.Ping(ctx); err != nil {
		return "", errors.Join(err, h.Close())
	}
	note := "no"
	for i, c := range calls {
		if i > 0 {
			note += ","
		}
		note += " " + c.name
	}
	return note, errors.Join(h.Close(), s.one(ctx))
}

// killed kills the server under an open session and an open result, and starts
// it again.
func (s *sail) killed(ctx context.Context) (string, error) {
	h, err := s.pool.AcquireSession(ctx)
	if err != nil {
		return "", err
	}
	if err := h.Ping(ctx); err != nil {
		return "", errors.Join(err, h.Close())
	}
	result, err := s.pool.Query(ctx, "SELECT id FROM range(5000000000)")
	if err != nil {
		return "", errors.Join(err, h.Close())
	}
	defer result.Release()
	result.Next()
	s.server.kill()

	for result.Next() { // what had arrived
	}
	if err := want("the result", result.Err(), backend.FaultTransport); err != nil {
		return "", errors.Join(err, h.Close())
	}
	if _, err = h.Query(ctx, "SELECT 1"); !errors.Is(err, flightpool.ErrSessionLost) {
		return "", errors.Join(fmt.Errorf("the session says %w", err), h.Close())
	}
	if err := s.one(ctx); err == nil {
		return "", errors.Join(errors.New("a query succeeds without a server"), h.Close())
	}
	if s.server, err = startSail(ctx, s.cfg, s.server.addr); err != nil {
		return "", errors.Join(err, h.Close())
	}
	began := time.Now()
	tries := 1
	for err = s.one(ctx); err != nil && ctx.Err() == nil; err = s.one(ctx) {
		tries++
		time.Sleep(50 * time.Millisecond)
	}
	again := time.Since(began)
	if _, stillLost := h.Query(ctx, "SELECT 1"); !errors.Is(stillLost, flightpool.ErrSessionLost) {
		err = errors.Join(err, fmt.Errorf("on the new server the session says %w", stillLost))
	}
	return fmt.Sprintf("served again %d ms after Sail listens, at try %d", again.Milliseconds(), tries), errors.Join(err, h.Close())
}
