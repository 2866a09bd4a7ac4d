package flightconn

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
)

// parts is a result of random endpoints at random locations, some of which are late or
// fail.
type parts struct {
	rng       *rand.Rand
	info      *pb.FlightInfo
	delays    []time.Duration
	refuses   []atomic.Bool // the first that is asked for an endpoint
	failing   int           // fails in its middle; negative: none
	mayChange bool
	mayFail   bool
}

func randomParts(seed uint64) *parts {
	rng := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // repeatable
	p := &parts{rng: rng, info: answer(int64Schema), failing: -1, mayChange: rng.IntN(4) == 0}
	n := 1 + rng.IntN(12)
	p.refuses = make([]atomic.Bool, n)
	if rng.IntN(4) == 0 {
		p.failing, p.mayFail = rng.IntN(n), true
	}
	if rng.IntN(3) == 0 {
		p.info.Schema = nil
	}
	places := [][]string{nil, {"grpc://r:2"}, {"grpc://r:2", "grpc://r:3"}, {"grpc://dead:9", "grpc://r:3"}, {"arrow-flight-reuse-connection://?", "grpc://r:2"}}
	for i := range n {
		p.delays = append(p.delays, time.Duration(rng.IntN(40))*time.Millisecond)
		p.refuses[i].Store(rng.IntN(6) == 0)
		e := &pb.FlightEndpoint{Ticket: &pb.Ticket{Ticket: []byte{byte(i)}}}
		place := rng.IntN(len(places))
		for _, uri := range places[place] {
			e.Location = append(e.Location, &pb.Location{Uri: uri})
		}
		p.info.Endpoint = append(p.info.Endpoint, e)
		// Who is refused asks the next location, if there is one, and for a read only.
		p.mayFail = p.mayFail || p.refuses[i].Load() && (len(places[place]) < 2 || place == 3 || p.mayChange)
	}
	return p
}

// get gives ten rows of each endpoint, in batches of one.
func (p *parts) get(ticket *pb.Ticket, s pb.FlightService_DoGetServer) error {
	k := int(ticket.GetTicket()[0])
	select {
	case <-time.After(p.delays[k]):
	case <-s.Context().Done():
		return s.Context().Err()
	}
	if p.refuses[k].Swap(false) {
		return status.Error(codes.Unavailable, "not here")
	}
	if k != p.failing {
		return sendValues(s, 10*k, 10*k+10)
	}
	if err := sendValues(s, 10*k, 10*k+5); err != nil {
		return err
	}
	return status.Error(codes.Unavailable, "in the middle")
}

// read reads the result, which its reader gives up after a while, or not.
func (p *parts) read(b *bubble, c *Conn, seed uint64) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var endedAt atomic.Pointer[time.Time]
	after, pause, mode := time.Duration(p.rng.IntN(200))*time.Millisecond, time.Duration(p.rng.IntN(20))*time.Millisecond, p.rng.IntN(3)
	ends := func(f func()) func() bool {
		return time.AfterFunc(after, func() { now := time.Now(); endedAt.Store(&now); f() }).Stop
	}
	if mode == 1 {
		defer ends(cancel)()
	}
	inTime := func(began time.Time) {
		if at := endedAt.Load(); at != nil {
			require.LessOrEqual(b, min(time.Since(began), time.Since(*at)), 50*time.Millisecond, "seed %d", seed)
		}
	}
	began := time.Now()
	s, err := c.Query(ctx, "q", backend.Call{MayChange: p.mayChange})
	if inTime(began); err != nil {
		require.True(b, p.mayFail || endedAt.Load() != nil, "seed %d: %v", seed, err)
		return
	}
	defer s.Close()
	closes := mode == 2
	if closes {
		defer ends(s.Close)()
	}
	var got []int64
	for {
		began = time.Now()
		batch, err := s.Next()
		if inTime(began); errors.Is(err, io.EOF) {
			require.True(b, closes || len(got) == 10*len(p.delays), "seed %d: an end after %d rows", seed, len(got))
			return
		}
		if err != nil {
			require.True(b, p.mayFail || endedAt.Load() != nil, "seed %d: %v", seed, err)
			return
		}
		if !closes { // else the batch may go at any moment
			got = append(got, batch.Column(0).(*array.Int64).Int64Values()...)
			require.Equal(b, upTo(len(got)), got, "seed %d", seed)
		}
		time.Sleep(pause) // the reader's own work
	}
}

// TestResultsInPartsAtRandom reads results from several locations, which fail, are late, or
// are given up: what is given out is the beginning of the rows in their order, an end is
// the true one, nobody waits for what was given up, and the connection goes on.
func TestResultsInPartsAtRandom(t *testing.T) {
	for seed := range uint64(300) {
		p := randomParts(seed)
		inBubble(t, &fake{info: infoOf(p.info), get: p.get}, func(b *bubble) {
			b.net.serve(b, "r:2", &fake{get: p.get})
			b.net.serve(b, "r:3", &fake{get: p.get})
			c := b.open()
			p.read(b, c, seed)
			ctx, cancel := context.WithTimeout(b.Context(), time.Second)
			defer cancel()
			require.NoError(b, c.Ping(ctx), "seed %d", seed)
		})
	}
}
