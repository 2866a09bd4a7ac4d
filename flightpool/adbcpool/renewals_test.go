package adbcpool

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/testserver"
)

// renewals is a server's tokens: each has its end, or none, and replies bring others.
type renewals struct {
	mu     sync.Mutex
	rng    *rand.Rand
	server *testserver.Server // nil: nothing is renewed yet
	ends   map[string]time.Time
	all    []string
	next   int
	given  string // by source, last
}

func newRenewals(seed uint64) *renewals {
	e := &renewals{rng: rand.New(rand.NewPCG(seed, 11)), ends: map[string]time.Time{}} //nolint:gosec // a repeatable sequence
	for i := range 400 {
		token := fmt.Sprintf("token-%d", i)
		if e.rng.IntN(2) == 0 { // a JSON Web Token, whose end may be before that of an earlier one
			at := time.Now().Add(time.Duration(10+e.rng.IntN(300)) * time.Second)
			token = "h." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d,"n":%d}`, at.Unix(), i)) + ".s"
			e.ends[token] = time.Unix(at.Unix(), 0)
		}
		e.all = append(e.all, token)
	}
	return e
}

// begin has replies renew tokens from now on.
func (e *renewals) begin(server *testserver.Server) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.server = server
}

// give is the next token of those that have not ended.
func (e *renewals) give() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	for {
		token := e.all[e.next%len(e.all)]
		e.next++
		if at, ok := e.ends[token]; !ok || time.Now().Before(at) {
			return token
		}
	}
}

// check refuses a token that has ended, and may renew it. behind is for when the reply is made.
func (e *renewals) check(ctx context.Context, send func(metadata.MD) error) (behind func(), err error) {
	values := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(values) == 0 {
		return func() {}, nil
	}
	token := strings.TrimPrefix(values[0], "Bearer ")
	e.mu.Lock()
	at, ok := e.ends[token]
	server, renew, revoke := e.server, e.rng.IntN(6) == 0, e.rng.IntN(2) == 0
	e.mu.Unlock()
	if ok && !time.Now().Before(at) {
		return nil, status.Error(codes.Unauthenticated, "the token has expired")
	}
	if token == "judge" || server == nil || !renew {
		return func() {}, nil
	}
	return func() {
		_ = send(metadata.Pairs("authorization", "Bearer "+e.give()))
		if revoke {
			server.Faults().ExpireToken(token)
		}
	}, nil
}

func (e *renewals) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			behind, err := e.check(ctx, func(md metadata.MD) error { return grpc.SetTrailer(ctx, md) })
			if err != nil {
				return nil, err
			}
			defer behind()
			return handle(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			behind, err := e.check(stream.Context(), func(md metadata.MD) error { stream.SetTrailer(md); return nil })
			if err != nil {
				return err
			}
			defer behind()
			return handle(srv, stream)
		}),
	}
}

// source is a TokenSource that may be slow or fail.
func (e *renewals) source(ctx context.Context) (string, time.Time, error) {
	e.mu.Lock()
	how, slow, ends, lasts := e.rng.IntN(6), e.rng.IntN(8), e.rng.IntN(2) == 0, 1+e.rng.IntN(120)
	e.mu.Unlock()
	switch how {
	case 0:
		return "", time.Time{}, errors.New("no token now")
	case 1:
		select {
		case <-ctx.Done():
			return "", time.Time{}, ctx.Err()
		case <-time.After(time.Duration(slow) * time.Second):
		}
	}
	token := e.give()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.given = token
	if !ends {
		return token, time.Time{}, nil
	}
	return token, time.Now().Add(time.Duration(lasts) * time.Second), nil
}

func (e *renewals) last() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.given
}
