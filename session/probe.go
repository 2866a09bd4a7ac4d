package session

import (
	"context"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/eof"
)

// runProbe runs the probe query to its end, outside of transactions. nil says that the
// session has answered; what else runs in it is not known from that alone.
func (s *SessionHandle) runProbe(ctx context.Context) error { return s.runProbeInTx(ctx, "") }

// runProbeInTx is runProbe inside tx, which a server that knows its transactions
// refuses once tx has ended or was aborted.
func (s *SessionHandle) runProbeInTx(ctx context.Context, tx backend.TxID) error {
	stream, err := s.conn.Query(ctx, s.policy.probeSQL(), backend.Call{Tx: tx})
	if err != nil {
		return err
	}
	return drain(stream)
}

// Probe runs a harmless query to its end, as a health check.
func Probe(ctx context.Context, c backend.Conn, sql string) error {
	stream, err := c.Query(ctx, sql, backend.Call{})
	if err != nil {
		return err
	}
	return drain(stream)
}

// drain reads a stream to its end, drops what it holds and closes it. nil stands for
// the regular end.
func drain(stream backend.Stream) error {
	defer stream.Close()
	for {
		if _, err := stream.Next(); err != nil {
			if eof.Reached(err) {
				return nil
			}
			return err
		}
	}
}
