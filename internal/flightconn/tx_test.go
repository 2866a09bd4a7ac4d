package flightconn

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// txServer keeps transactions as SwanLake or a strict server does.
type txServer struct {
	ignores bool // ends of unknown transactions are a success, and roll back what is open
	next    byte
	open    map[string]bool
	seen    []string
}

func (ts *txServer) action(a *pb.Action, s pb.FlightService_DoActionServer) error {
	switch a.GetType() {
	case "BeginTransaction":
		ts.next++
		id := string([]byte{0, 0, 0, 0, 0, 0, 0, ts.next}) // big-endian, as SwanLake's
		ts.open = map[string]bool{id: true}
		ts.seen = append(ts.seen, "begin")
		return s.Send(&pb.Result{Body: pack(&pb.ActionBeginTransactionResult{TransactionId: []byte(id)})})
	case "EndTransaction":
		var req pb.ActionEndTransactionRequest
		if err := unpack(a.GetBody(), &req); err != nil {
			return err
		}
		id := string(req.GetTransactionId())
		switch {
		case len(id) != 8:
			return status.Error(codes.InvalidArgument, "malformed transaction id")
		case !ts.open[id] && !ts.ignores:
			return status.Error(codes.InvalidArgument, "unknown transaction")
		}
		if ts.open[id] {
			ts.seen = append(ts.seen, req.GetAction().String())
		}
		ts.open = nil
		return nil
	case "BeginSavepoint":
		return s.Send(&pb.Result{Body: pack(&pb.ActionBeginSavepointResult{SavepointId: []byte("sp")})})
	case "EndSavepoint":
		var req pb.ActionEndSavepointRequest
		if err := unpack(a.GetBody(), &req); err != nil {
			return err
		}
		ts.seen = append(ts.seen, fmt.Sprintf("%s %s", req.GetAction(), req.GetSavepointId()))
		return nil
	}
	return status.Error(codes.Unimplemented, a.GetType())
}

func TestWhetherTransactionIDsAreCheckedIsLearnedByTheFirstBegin(t *testing.T) {
	for _, ignores := range []bool{false, true} {
		ts := &txServer{ignores: ignores}
		inBubble(t, &fake{action: ts.action}, func(b *bubble) {
			c := b.open()
			tx, err := c.Begin(b.Context())
			require.NoError(b, err)
			require.True(b, ts.open[string(tx)], "the transaction that is handed out is open")
			begins := int(ts.next)
			trusted, err := c.RejectsUnknownTx(b.Context())
			require.NoError(b, err)
			require.Equal(b, !ignores, trusted)
			require.NoError(b, c.EndTx(b.Context(), tx, true))

			tx, err = b.open().Begin(b.Context())
			require.NoError(b, err)
			require.Equal(b, begins+1, int(ts.next), "learned once for the endpoint")
			require.NoError(b, c.EndTx(b.Context(), tx, false))
			require.Contains(b, ts.seen, "END_TRANSACTION_COMMIT")
		})
	}
}

func TestTrustsTxIDsCanBeAskedWithoutATransaction(t *testing.T) {
	for _, ignores := range []bool{false, true} {
		ts := &txServer{ignores: ignores}
		inBubble(t, &fake{action: ts.action}, func(b *bubble) {
			trusted, err := b.open().RejectsUnknownTx(b.Context())
			require.NoError(b, err)
			require.Equal(b, !ignores, trusted)
			require.Empty(b, ts.open, "nothing is left open")
		})
	}
	asked := 0
	none := &fake{action: func(a *pb.Action, _ pb.FlightService_DoActionServer) error {
		if a.GetType() == "BeginTransaction" {
			asked++
		}
		return status.Error(codes.Unimplemented, a.GetType())
	}}
	inBubble(t, none, func(b *bubble) { // no transactions at all
		c := b.open()
		for range 2 {
			trusted, err := c.RejectsUnknownTx(b.Context())
			require.NoError(b, err)
			require.False(b, trusted, "it has shown nothing")
			repeats, err := c.RepeatsQueries(b.Context())
			require.NoError(b, err)
			require.False(b, repeats)
		}
		require.Equal(b, 2, asked, "once more after it has answered otherwise")
	})
}

// What a server is learned to do holds for good, so that an answer which is not its
// own must teach nothing, however often it is given in turn: that it has no
// transactions, or that it refuses ids which it does not know.
func TestAPassingFailureTeachesNothingAboutTransactions(t *testing.T) {
	for name, code := range map[string]codes.Code{"BeginTransaction": codes.Unimplemented, "EndTransaction": codes.NotFound} {
		for times := 1; times <= 4; times++ {
			ts := &txServer{ignores: true}
			failing := false
			fails := func() error {
				if !failing || times == 0 {
					return nil
				}
				times--
				return status.Error(code, "no route")
			}
			left := times
			inBubble(t, &fake{
				action: func(a *pb.Action, s pb.FlightService_DoActionServer) error {
					failing = failing || a.GetType() == name
					if err := fails(); err != nil {
						return err
					}
					return ts.action(a, s)
				},
				info: func(context.Context, *pb.FlightDescriptor) (*pb.FlightInfo, error) {
					if err := fails(); err != nil {
						return nil, err
					}
					return &pb.FlightInfo{}, nil
				},
			}, func(b *bubble) {
				first := b.open()
				_, _ = first.RejectsUnknownTx(b.Context())
				repeats, err := first.RepeatsQueries(b.Context())
				require.True(b, err != nil || repeats, "%s, %d times: it may", name, left)
				times = 0
				later := b.open()
				trusted, err := later.RejectsUnknownTx(b.Context())
				require.NoError(b, err)
				require.False(b, trusted, "%s, %d times", name, left)
				repeats, err = later.RepeatsQueries(b.Context())
				require.NoError(b, err)
				require.True(b, repeats, "%s, %d times", name, left)
			})
			times = left
		}
	}
}

// A transaction of the pool's own that the server says it has lost, and holds, is
// not left to the statements of the session.
func TestAnOwnTransactionThatIsSaidToBeGoneIsLookedFor(t *testing.T) {
	ts := &txServer{}
	ends := 0
	inBubble(t, &fake{action: func(a *pb.Action, s pb.FlightService_DoActionServer) error {
		switch {
		case a.GetType() == "EndTransaction":
			if ends++; ends > 2 {
				return status.Error(codes.NotFound, "no route")
			}
		case len(ts.open) > 0:
			return status.Error(codes.FailedPrecondition, "a transaction is open")
		}
		return ts.action(a, s)
	}}, func(b *bubble) {
		_, err := b.open().RejectsUnknownTx(b.Context())
		require.ErrorIs(b, err, backend.ErrSessionLost)
	})
}

// A server that never answers what the pool learns by fails one open for each caller who was
// cut, and not all of them.
func TestWhatCannotBeLearnedFailsNoSecondOpen(t *testing.T) {
	ts := &txServer{}
	inBubble(t, &fake{action: func(a *pb.Action, s pb.FlightService_DoActionServer) error {
		if a.GetType() == "EndTransaction" {
			<-s.Context().Done()
			return s.Context().Err()
		}
		return ts.action(a, s)
	}}, func(b *bubble) {
		c := b.open()
		cut, stop := context.WithTimeout(b.Context(), time.Second)
		defer stop()
		_, err := c.RejectsUnknownTx(cut)
		require.Error(b, err)
		failed := 0
		for ; ; failed++ {
			cut, stop := context.WithTimeout(b.Context(), time.Second)
			c, err := c.endpoint.Open(cut)
			stop()
			if err == nil {
				require.NoError(b, c.Close())
				break
			}
			require.Zero(b, failed)
		}
		require.Equal(b, 1, failed)
	})
}

func TestAnUnknownIDLooksLikeARealOneAndIsNot(t *testing.T) {
	for _, id := range []backend.TxID{"\x00\x00\x00\x00\x00\x00\x00\x01", "0b1c9f3e-aaaa-4bbb-8ccc-0123456789ab", "tx-0011223344FF"} {
		other := unknownTxID(id)
		require.Len(t, other, len(id))
		require.NotEqual(t, id, other)
	}
	require.Equal(t, byte('-'), unknownTxID("0b1c9f3e-aaaa")[8])
	require.Equal(t, backend.TxID("9223372036854775807"), unknownTxID("17"))
	for _, short := range []backend.TxID{"tx-7", "tx-00", "tx-"} { // a random one could be that of another session
		require.Equal(t, backend.TxID("tx-9223372036854775807"), unknownTxID(short))
	}
	require.Equal(t, backend.TxID("z9223372036854775807"), unknownTxID("z"))
}

func TestEndTxReportsWhatTheServerSaid(t *testing.T) {
	ts := &txServer{}
	inBubble(t, &fake{action: ts.action}, func(b *bubble) {
		c := b.open()
		err := c.EndTx(b.Context(), "\x00\x00\x00\x00\x00\x00\x00\x63", true)
		require.Equal(b, backend.FaultStatement, failure(b, err).Fault)
		require.ErrorContains(b, err, "unknown transaction")
	})
}

func TestSavepointsAreEndedAsAsked(t *testing.T) {
	ts := &txServer{}
	inBubble(t, &fake{action: ts.action}, func(b *bubble) {
		c := b.open()
		sp, err := c.Savepoint(b.Context(), "tx", "mine")
		require.NoError(b, err)
		require.NoError(b, c.EndSavepoint(b.Context(), sp, backend.SavepointRollback))
		require.NoError(b, c.EndSavepoint(b.Context(), sp, backend.SavepointRelease))
		require.Equal(b, []string{"END_SAVEPOINT_ROLLBACK sp", "END_SAVEPOINT_RELEASE sp"}, ts.seen)
	})
}

func TestAnswersWithoutAnIDOrThatAreGarbagePutTheConnectionInDoubt(t *testing.T) {
	for _, body := range [][]byte{nil, []byte("garbage"), pack(&pb.ActionBeginTransactionResult{}), pack(&pb.ActionEndTransactionRequest{})} {
		f := &fake{action: func(_ *pb.Action, s pb.FlightService_DoActionServer) error { return s.Send(&pb.Result{Body: body}) }}
		inBubble(t, f, func(b *bubble) {
			c := b.open()
			_, err := c.Begin(b.Context())
			require.Equal(b, backend.FaultUnknown, failure(b, err).Fault)
			_, err = c.Savepoint(b.Context(), "tx", "s")
			require.Equal(b, backend.FaultUnknown, failure(b, err).Fault)
		})
	}
}

func TestSessionOptionsTravelThereAndBack(t *testing.T) {
	stored := map[string]*pb.SessionOptionValue{}
	f := &fake{}
	f.action = func(a *pb.Action, s pb.FlightService_DoActionServer) error {
		switch a.GetType() {
		case "SetSessionOptions":
			var req pb.SetSessionOptionsRequest
			if err := unmarshal(a.GetBody(), &req); err != nil {
				return err
			}
			reply := &pb.SetSessionOptionsResult{Errors: map[string]*pb.SetSessionOptionsResult_Error{}}
			for name, value := range req.GetSessionOptions() {
				if name == "bad" {
					reply.Errors[name] = &pb.SetSessionOptionsResult_Error{Value: pb.SetSessionOptionsResult_INVALID_NAME}
					continue
				}
				stored[name] = value
			}
			return s.Send(&pb.Result{Body: marshal(reply)})
		case "GetSessionOptions":
			return s.Send(&pb.Result{Body: marshal(&pb.GetSessionOptionsResult{SessionOptions: stored})})
		}
		return status.Error(codes.Unimplemented, a.GetType())
	}
	inBubble(t, f, func(b *bubble) {
		c := b.open()
		opts := map[string]any{"s": "x", "b": true, "i": int64(3), "f": 1.5, "l": []string{"a", "b"}}
		require.NoError(b, c.SetOptions(b.Context(), opts))
		got, err := c.Options(b.Context())
		require.NoError(b, err)
		require.Equal(b, opts, got)

		err = c.SetOptions(b.Context(), map[string]any{"bad": 1})
		require.Equal(b, backend.FaultStatement, failure(b, err).Fault)
		require.ErrorContains(b, err, "INVALID_NAME")
		err = c.SetOptions(b.Context(), map[string]any{"x": struct{}{}, "y": uint64(1) << 63})
		require.Equal(b, backend.FaultUsage, failure(b, err).Fault)
		require.ErrorContains(b, err, `"x"`)
		require.ErrorContains(b, err, `"y"`)
	})
	inBubble(t, &fake{}, func(b *bubble) {
		_, err := b.open().Options(b.Context())
		require.Equal(b, backend.FaultUnsupported, failure(b, err).Fault)
	})
}

// What the server's ids look like, an unknown one does too: of any other shape
// it would be refused as malformed, which shows nothing.
func TestAnUnknownIDHasTheAlphabetOfARealOne(t *testing.T) {
	for id, shape := range map[string]string{
		strings.Repeat("0", 32) + "a": `^[0-9a-f]{33}$`, strings.Repeat("9", 32) + "a": `^[0-9a-f]{33}$`,
		strings.Repeat("a", 33): `^[0-9a-f]{33}$`, strings.Repeat("f", 33): `^[0-9a-f]{33}$`,
		strings.Repeat("A", 33): `^[0-9]{33}$`, strings.Repeat("F", 33): `^[0-9]{33}$`, // no letter that the server may not take
		"tx-G~!" + strings.Repeat("0", 27): `^tx-G~![0-9a-f]{27}$`,
	} {
		other := unknownTxID(backend.TxID(id))
		require.Regexp(t, shape, string(other))
		require.NotEqual(t, id[6:32], string(other[6:32]), "as good as none of it stays")
	}
	for _, number := range []backend.TxID{"0", "9", "190"} {
		require.Equal(t, backend.TxID("9223372036854775807"), unknownTxID(number))
	}
}

func TestAnAnswerWithoutASavepointsIDIsNone(t *testing.T) {
	f := &fake{action: func(_ *pb.Action, s pb.FlightService_DoActionServer) error {
		return s.Send(&pb.Result{Body: pack(&pb.ActionBeginSavepointResult{})})
	}}
	inBubble(t, f, func(b *bubble) {
		_, err := b.open().Savepoint(b.Context(), "tx", "s")
		require.ErrorIs(b, err, errMalformed)
	})
}

// A proxy that refuses the ends of all transactions for a while says nothing of unknown ones: a
// server that confirms those would be trusted for the life of its endpoint.
func TestRefusalsOfEveryEndTeachNothing(t *testing.T) {
	for _, code := range []codes.Code{codes.Unimplemented, codes.NotFound, codes.InvalidArgument, codes.FailedPrecondition, codes.Internal} {
		for refusals := range 4 {
			for name, learn := range map[string]func(ctx context.Context, c *Conn) error{
				"Begin":            func(ctx context.Context, c *Conn) error { _, err := c.Begin(ctx); return err },
				"RejectsUnknownTx": func(ctx context.Context, c *Conn) error { _, err := c.RejectsUnknownTx(ctx); return err },
			} {
				t.Run(fmt.Sprintf("%s %s %d", name, code, refusals), func(t *testing.T) {
					ts, ends := &txServer{ignores: true}, 0
					f := &fake{action: func(a *pb.Action, s pb.FlightService_DoActionServer) error {
						if a.GetType() == "EndTransaction" {
							if ends++; ends <= refusals {
								return status.Error(code, "no")
							}
						}
						return ts.action(a, s)
					}}
					inBubble(t, f, func(b *bubble) {
						_ = learn(b.Context(), b.open()) // it may give its session up
						trusted, err := b.open().RejectsUnknownTx(b.Context())
						require.NoError(b, err)
						require.False(b, trusted)
					})
				})
			}
		}
	}
}

// A page in place of the answer to a Begin says nothing of it: the transaction that is open would
// take in what follows, and nobody would commit it.
func TestAPageInPlaceOfABeginIsNoLackOfTransactions(t *testing.T) {
	ts, page := &txServer{}, status.Error(codes.Unimplemented, "transport: the server has answered with HTTP status 404 and content type \"text/html\": it speaks no gRPC there")
	f := &fake{action: func(a *pb.Action, s pb.FlightService_DoActionServer) error {
		if a.GetType() == "BeginTransaction" {
			return page
		}
		return ts.action(a, s)
	}}
	inBubble(t, f, func(b *bubble) {
		c := b.open()
		_, err := c.RejectsUnknownTx(b.Context())
		require.Error(b, err)
		page = nil
		f.action = ts.action
		trusted, err := c.RejectsUnknownTx(b.Context())
		require.NoError(b, err)
		require.True(b, trusted, "nothing was learned of the page")
	})
}
