package session

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
)

// proofConn is a fakeConn whose word about its transactions, and whose prepared
// statements' answers, can be set.
type proofConn struct {
	*fakeConn
	trusted  bool
	trustErr error
	answer   func(s backend.Stream) backend.Stream // of prepared statements
	prepares error                                 // what preparing fails with
	times    int                                   // how often it does; 0: always
	tried    int
}

func (c *proofConn) RejectsUnknownTx(context.Context) (bool, error) { return c.trusted, c.trustErr }

func (c *proofConn) Prepare(ctx context.Context, sql string, call backend.Call) (backend.Prepared, error) {
	if c.tried++; c.prepares != nil && (c.times == 0 || c.tried <= c.times) {
		return nil, c.prepares
	}
	p, err := c.fakeConn.Prepare(ctx, sql, call)
	return proofPrepared{p, c}, err
}

type proofPrepared struct {
	backend.Prepared
	c *proofConn
}

func (p proofPrepared) Query(ctx context.Context, params arrow.RecordBatch, call backend.Call) (backend.Stream, error) {
	s, err := p.Prepared.Query(ctx, params, call)
	if err == nil && p.c.answer != nil {
		s = p.c.answer(s)
	}
	return s, err
}

func proofs(f *fakeConn) (n int) {
	for _, call := range f.Log() {
		if nonce.MatchString(call) {
			n++
		}
	}
	return n
}

// A server that cannot say whether it minds the ids of transactions is taken for
// one that does not.
func TestAServerThatDoesNotSayIsProven(t *testing.T) {
	limit := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultLimit, Err: status.Error(codes.ResourceExhausted, "busy")}
	for name, tc := range map[string]struct {
		conn   proofConn
		fails  bool
		proven bool
	}{
		"it minds them":           {conn: proofConn{trusted: true}},
		"it does not":             {conn: proofConn{}, proven: true},
		"it refuses to say":       {conn: proofConn{trustErr: sqlError("not supported")}, proven: true},
		"it says so, and refuses": {conn: proofConn{trusted: true, trustErr: sqlError("not supported")}, proven: true},
		"it fails":                {conn: proofConn{trusted: true, trustErr: sqlError("oops")}, fails: true},
		"it cannot be asked now":  {conn: proofConn{trusted: true, trustErr: limit}, fails: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := tc.conn
			conn.fakeConn = &fakeConn{}
			r := newRig(t, conn.fakeConn)
			r.handle = New(&conn, r.policy, r.returned)
			err := r.handle.BeginTransaction(t.Context())
			require.Equal(t, tc.fails, err != nil, "%s: %v", name, err)
			require.Equal(t, tc.proven, r.handle.acceptsUnknownTx(), name)
			require.Equal(t, tc.fails, !slices.Contains(conn.Log(), "Begin"), name)
			_ = r.handle.Close()
			if tc.fails { // a transaction may be open that it was asked with
				require.ErrorIs(t, r.discarded(), backend.ErrSessionLost, name)
			} else {
				r.reused()
			}
		})
	}
}

// A server that refuses to prepare the proof once may have failed at it. Without the proof a change would run by
// itself in a session that has replaced the transaction's.
func TestAProofThatIsRefusedOnceIsPreparedAgain(t *testing.T) {
	for _, tc := range []struct {
		code         codes.Code
		times, tries int
		holds        bool
	}{
		{codes.Internal, 1, 2, true},
		{codes.InvalidArgument, 1, 2, true},
		{codes.Internal, 2, 3, true},
		{codes.Internal, 0, 3, false},
		{codes.InvalidArgument, 0, 2, false},
		{codes.DeadlineExceeded, 1, 2, true},
		{codes.DeadlineExceeded, 0, 2, false},
		{codes.Unimplemented, 0, 1, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := proofConn{fakeConn: &fakeConn{forgives: true}, times: tc.times}
			fault := backend.FaultOf(tc.code, "no")
			if tc.code == codes.DeadlineExceeded {
				fault = backend.FaultStatement // as it is to a connection whose caller has not left
			}
			conn.prepares = &backend.Error{Stage: backend.StagePrepare, Fault: fault, Err: status.Error(tc.code, "no")}
			r := newRig(t, conn.fakeConn)
			r.handle = New(&conn, r.policy, r.returned)
			err := r.handle.BeginTransaction(t.Context())
			if tc.code == codes.DeadlineExceeded && tc.times == 0 { // nobody has said that it takes none
				require.ErrorIs(t, err, backend.ErrSessionLost)
				require.Equal(t, tc.tries, conn.tried)
				_ = r.handle.Close()
				return
			}
			must(t, err)
			require.Equal(t, tc.tries, conn.tried)
			conn.answer = func(own backend.Stream) backend.Stream { own.Close(); return answers() }
			time.Sleep(time.Second)
			_, err = r.handle.Update(t.Context(), "INSERT 1")
			require.Equal(t, tc.holds, errors.Is(err, backend.ErrSessionLost), "%v: %v", tc.code, err)
			require.Equal(t, !tc.holds, slices.Contains(conn.Log(), "tx1: INSERT 1"))
			_ = r.handle.Close()
		})
	}
}

// A server that has prepared a proof, and refuses another, fails: without one a session that has replaced the handle's would
// not be noticed.
func TestAServerThatTakesProofsIsNotTakenForOneThatDoesNot(t *testing.T) {
	for _, code := range []codes.Code{codes.Internal, codes.Unimplemented} {
		synctest.Test(t, func(t *testing.T) {
			conn := proofConn{fakeConn: &fakeConn{forgives: true}}
			r := newRig(t, conn.fakeConn)
			r.handle = New(&conn, r.policy, r.returned)
			must(t, r.handle.BeginTransaction(t.Context()))
			must(t, r.handle.Rollback(t.Context()))
			must(t, r.handle.Close())
			conn.prepares = &backend.Error{Stage: backend.StagePrepare, Fault: backend.FaultOf(code, "no"), Err: status.Error(code, "no")}
			s := New(&conn, r.policy, func(discard error) { require.ErrorIs(t, discard, backend.ErrSessionLost) })
			err := s.BeginTransaction(t.Context())
			require.ErrorIs(t, err, backend.ErrSessionLost)
			require.True(t, backend.SafeToRetry(err))
			_ = s.Close()
		})
	}
}

// One that refuses unknown transactions may refuse it, whatever it has prepared for another session: it refuses what it does not
// know, and what no call names is not proven then.
func TestAServerThatKnowsItsTransactionsMayRefuseTheProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := proofConn{fakeConn: &fakeConn{}, trusted: true}
		r := newRig(t, conn.fakeConn)
		first := New(&conn, r.policy, func(error) {})
		_, err := first.Update(t.Context(), "SET threads = 1")
		must(t, err)
		require.Equal(t, proofHeld, first.mu.proof.state)
		require.True(t, r.policy.takesProofs.Load())
		_ = first.Close()
		conn.prepares = &backend.Error{Stage: backend.StagePrepare, Fault: backend.FaultUnsupported, Err: status.Error(codes.Unimplemented, "no")}
		r.handle = New(&conn, r.policy, r.returned)
		_, err = r.handle.Update(t.Context(), "SET threads = 1")
		must(t, err)
		require.Equal(t, proofNotNeeded, r.handle.mu.proof.state)
		_ = r.handle.Close()
	})
}

// A server that counts its handles gives the proof that of a statement of the handle's once it has put another session in the
// place of its own: what is set for the first time is not set in that one.
func TestAProofUnderTheHandleOfAStatementIsThatOfAnotherSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{prepared: func(p *fakePrepared) backend.Prepared { return numbered{p} }})
		_, err := r.handle.PrepareQuery(t.Context(), "SELECT 2")
		must(t, err)
		r.conn.replaceSession()
		r.conn.handleNo = 0
		_, err = r.handle.Update(t.Context(), "SET threads = 1")
		require.ErrorIs(t, err, backend.ErrSessionReplaced)
		require.True(t, backend.SafeToRetry(err))
		require.NotContains(t, r.conn.Log(), "SET threads = 1")
		_ = r.handle.Close()
		require.ErrorIs(t, r.discarded(), backend.ErrSessionReplaced)
	})
}

// askedTwice is a proofConn whose server refuses to say it when it is asked first.
type askedTwice struct {
	proofConn
	asked bool
}

func (c *askedTwice) RejectsUnknownTx(ctx context.Context) (bool, error) {
	if !c.asked {
		c.asked = true
		return false, sqlError("not supported")
	}
	return c.proofConn.RejectsUnknownTx(ctx)
}

// A server that prepares no proof, and has said when it was asked again that it refuses transactions that it does not
// know, is shown one by its id: it may pause.
func TestATransactionThatIsItsOwnProofMayPause(t *testing.T) {
	for _, end := range []func(context.Context, *SessionHandle) error{
		func(ctx context.Context, s *SessionHandle) error { return s.Commit(ctx) },
		func(ctx context.Context, s *SessionHandle) error { return s.Rollback(ctx) },
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := &askedTwice{proofConn: proofConn{fakeConn: &fakeConn{}, trusted: true}}
			conn.prepares = &backend.Error{Stage: backend.StagePrepare, Fault: backend.FaultUnsupported, Err: status.Error(codes.Unimplemented, "no")}
			r := newRig(t, conn.fakeConn)
			r.handle = New(conn, r.policy, r.returned)
			must(t, r.handle.BeginTransaction(t.Context()))
			time.Sleep(2 * maxUnprovenPause)
			_, err := r.handle.Update(t.Context(), "INSERT 1")
			must(t, err)
			time.Sleep(2 * maxUnprovenPause)
			must(t, end(t.Context(), r.handle))
			must(t, r.handle.Close())
			r.reused()
		})
	}
}

// A page of HTTP in place of the answer to the proof is no word of the server's that it takes none. Without
// a proof, a transaction would go on unseen in a session that has replaced its own.
func TestAPageIsNoRefusalOfTheProof(t *testing.T) {
	for _, tc := range []struct {
		code  codes.Code
		text  string
		fails bool
	}{
		{codes.Unimplemented, "unexpected HTTP status code received from server: 404 (Not Found); transport: received unexpected content-type \"text/html\"", true},
		{codes.Unimplemented, "transport: the server has answered with HTTP status 404 and content type \"text/html\": it speaks no gRPC there", true},
		{codes.Unimplemented, "prepared statements are not supported", false},
		{codes.Internal, "not supported", false},
	} {
		synctest.Test(t, func(t *testing.T) {
			refused := &backend.Error{Stage: backend.StagePrepare, Fault: backend.FaultOf(tc.code, tc.text), Err: status.Error(tc.code, tc.text)}
			conn := proofConn{fakeConn: &fakeConn{forgives: true}, prepares: refused}
			r := newRig(t, conn.fakeConn)
			_, err := NewKeeping(t.Context(), &conn, r.policy, func() {})
			require.Equal(t, tc.fails, err != nil, tc.text)
			r.handle = New(&conn, r.policy, r.returned)
			err = r.handle.BeginTransaction(t.Context())
			_ = r.handle.Close()
			if !tc.fails {
				require.NoError(t, err, tc.text)
				r.reused()
				return
			}
			require.ErrorIs(t, err, backend.ErrSessionLost, tc.text)
			require.ErrorContains(t, err, "HTTP status", tc.text)
			require.True(t, backend.SafeToRetry(err), tc.text)
			require.NotContains(t, conn.Log(), "Begin", tc.text)
			require.ErrorIs(t, r.discarded(), backend.ErrSessionLost, tc.text)
		})
	}
}

// A read asks for the proof when the last statement that was answered was sent
// maxProofAge ago, and not before.
func TestAReadAsksForTheProofFromItsAgeOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{forgives: true})
		q, err := r.handle.PrepareQuery(t.Context(), "SELECT 3")
		must(t, err)
		before := 0
		read := func(after time.Duration, sql string, asks bool) {
			t.Helper()
			time.Sleep(after)
			res, err := r.handle.Query(t.Context(), sql)
			if err == nil {
				table, err := res.ReadAll(t.Context())
				must(t, err)
				table.Release()
			}
			now := proofs(r.conn)
			require.Equal(t, asks, now > before, "%q", r.conn.Log())
			before = now
		}
		before = proofs(r.conn)
		read(maxProofAge-1, "SELECT 2", false)
		read(1, "SELECT 2", true) // counted from the proof: the read may have been another session's
		read(maxProofAge-1, "SELECT bad", false)
		read(maxProofAge, "SELECT bad", true)
		read(maxProofAge-1, "SELECT 2", false)
		r.conn.late = func() { time.Sleep(maxProofAge / 2) }
		_, err = r.handle.Update(t.Context(), "INSERT 1") // is sent when the proof has come
		must(t, err)
		r.conn.late = nil
		before = proofs(r.conn)
		read(0, "SELECT 2", false)
		read(maxProofAge, "SELECT 2", true)
		time.Sleep(maxProofAge - 1)
		must(t, r.handle.Ping(t.Context()))
		read(1, "SELECT 2", true) // neither is a Ping a proof,
		time.Sleep(maxProofAge - 1)
		must(t, q.Close(t.Context()))
		read(1, "SELECT 2", true) // nor a Close
		must(t, r.handle.Close())
		r.reused()
	})
}

// What is no statement asks for the proof as a read does, but not in an aborted
// transaction, which refuses it.
func TestWhatIsNoStatementAsksForTheProof(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, s *SessionHandle) error{
		"Ping":    func(ctx context.Context, s *SessionHandle) error { return s.Ping(ctx) },
		"Options": func(ctx context.Context, s *SessionHandle) error { _, err := s.Options(ctx); return err },
		"Metadata": func(ctx context.Context, s *SessionHandle) error {
			res, err := s.Metadata(ctx, backend.MetadataRequest{Kind: backend.MetadataTables})
			if err == nil {
				err = res.Close()
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, &fakeConn{forgives: true})
				must(t, r.handle.BeginTransaction(t.Context()))
				for pause, asked := range map[time.Duration]int{maxProofAge - 1: 0, maxProofAge: 1} {
					before := proofs(r.conn)
					time.Sleep(pause)
					must(t, call(t.Context(), r.handle))
					require.Equal(t, asked, proofs(r.conn)-before, "%s: %q", pause, r.conn.Log())
				}
				_, err := r.handle.Update(t.Context(), "INSERT bad")
				require.Error(t, err)
				before := proofs(r.conn)
				time.Sleep(maxProofAge)
				if err = call(t.Context(), r.handle); name == "Metadata" {
					require.ErrorIs(t, err, backend.ErrTxAborted)
				} else {
					must(t, err)
				}
				require.Equal(t, before, proofs(r.conn))
				must(t, r.handle.Close())
			})
		})
	}
}

// Where no proof can be had, a transaction may pause for less than maxUnprovenPause.
func TestAnUnprovenTransactionMayPauseForLessThanItsAge(t *testing.T) {
	for pause, lost := range map[time.Duration]bool{maxUnprovenPause - 1: false, maxUnprovenPause: true} {
		synctest.Test(t, func(t *testing.T) {
			no := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultUnsupported, Err: status.Error(codes.Unimplemented, "no")}
			r := newRig(t, &fakeConn{forgives: true, fail: map[string]error{"Prepare": no}})
			must(t, r.handle.BeginTransaction(t.Context()))
			time.Sleep(pause)
			_, err := r.handle.Update(t.Context(), "INSERT 1")
			if lost {
				require.ErrorIs(t, err, backend.ErrSessionLost)
			} else {
				must(t, err)
			}
			_ = r.handle.Close()
		})
	}
}

// A proof counts that was answered within its age; one that never is costs the
// session.
func TestAProofIsAskedForThreeTimesAtMost(t *testing.T) {
	for takes, want := range map[time.Duration]struct {
		asked int
		lost  bool
	}{maxProofAge - 1: {1, false}, maxProofAge: {3, true}} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{forgives: true})
			must(t, r.handle.BeginTransaction(t.Context()))
			before := proofs(r.conn)
			r.conn.late = func() { time.Sleep(takes) }
			_, err := r.handle.Update(t.Context(), "INSERT 1")
			require.Equal(t, want.asked, proofs(r.conn)-before)
			if want.lost {
				require.ErrorIs(t, err, backend.ErrSessionLost)
				require.ErrorContains(t, err, "took longer")
				require.NotContains(t, r.conn.Log(), "tx1: INSERT 1")
			} else {
				must(t, err)
			}
			_ = r.handle.Close()
		})
	}
}

// What answers for the session is the first value of the first batch. An answer
// that is another says that the session was replaced, and a failure that says
// nothing of it does not.
func TestWhatTheAnswerOfAProofSays(t *testing.T) {
	limit := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultLimit, Err: status.Error(codes.ResourceExhausted, "busy")}
	text := func(s string) arrow.RecordBatch {
		b := array.NewStringBuilder((&fakeConn{}).allocator())
		defer b.Release()
		b.Append(s)
		column := b.NewArray()
		defer column.Release()
		return array.NewRecordBatch(fakeTextSchema, []arrow.Array{column}, 1)
	}
	empty := func() arrow.RecordBatch { return array.NewRecordBatch(arrow.NewSchema(nil, nil), nil, 0) }
	row := func() arrow.RecordBatch { return array.NewRecordBatch(arrow.NewSchema(nil, nil), nil, 1) }
	for name, tc := range map[string]struct {
		answer   func(own backend.Stream) backend.Stream
		fail     error
		replaced bool
		lost     bool
	}{
		"the number":                  {},
		"the number, and another":     {answer: func(own backend.Stream) backend.Stream { return &longStream{Stream: own, more: text("x")} }},
		"another":                     {answer: func(own backend.Stream) backend.Stream { own.Close(); return answers(text("x")) }, replaced: true, lost: true},
		"no column":                   {answer: func(own backend.Stream) backend.Stream { own.Close(); return answers(empty()) }, replaced: true, lost: true},
		"a row of no column":          {answer: func(own backend.Stream) backend.Stream { own.Close(); return answers(row()) }, replaced: true, lost: true},
		"nothing":                     {answer: func(own backend.Stream) backend.Stream { own.Close(); return answers() }, replaced: true, lost: true},
		"a refusal":                   {fail: sqlError("no such statement"), replaced: true, lost: true},
		"a failure of the moment":     {fail: limit},
		"a failure within the answer": {answer: func(own backend.Stream) backend.Stream { own.Close(); return &erringStream{err: limit} }, fail: limit},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := &proofConn{fakeConn: &fakeConn{failOnce: map[string][]error{}}}
			r := newRig(t, conn.fakeConn)
			r.handle = New(conn, r.policy, r.returned)
			_, err := r.handle.PrepareQuery(t.Context(), "SELECT 1")
			must(t, err)
			if tc.fail != nil && tc.answer == nil {
				sql := "SELECT '" + r.handle.mu.proof.nonce + "'"
				conn.failOnce[sql] = []error{tc.fail}
			}
			conn.answer = tc.answer
			_, err = r.handle.Update(t.Context(), "INSERT 1")
			require.Equal(t, tc.replaced || tc.fail != nil, err != nil, "%s: %v", name, err)
			require.Equal(t, err == nil, slices.Contains(conn.Log(), "INSERT 1"), name)
			if tc.replaced {
				require.ErrorIs(t, err, backend.ErrSessionReplaced, name)
			} else {
				require.NotErrorIs(t, err, backend.ErrSessionReplaced, name)
			}
			conn.answer = nil
			_, err = r.handle.Update(t.Context(), "INSERT 2")
			if tc.lost {
				require.ErrorIs(t, err, backend.ErrSessionLost, name)
			} else {
				require.NoError(t, err, name)
			}
			_ = r.handle.Close()
		})
	}
}

// answers is a stream of the batches.
func answers(batches ...arrow.RecordBatch) backend.Stream {
	return &scriptStream{next: func(n int) (arrow.RecordBatch, error) {
		if n > len(batches) {
			return nil, io.EOF
		}
		return batches[n-1], nil
	}}
}

// longStream is a stream with one more batch.
type longStream struct {
	backend.Stream
	more arrow.RecordBatch
}

func (s *longStream) Next() (arrow.RecordBatch, error) {
	batch, err := s.Stream.Next()
	if err != nil && s.more != nil {
		batch, err, s.more = s.more, nil, nil
	}
	return batch, err
}

// A server that executes nothing, and fails to prepare the proof without a reason, has not said that it takes none.
func TestAProofThatFailsWithTheServerIsNoRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := &backend.Error{Stage: backend.StagePrepare, Fault: backend.FaultStatement, Err: status.Error(codes.Internal, "out of order")}
		conn := proofConn{fakeConn: &fakeConn{forgives: true, fail: map[string]error{"SELECT 1": fails}}, prepares: fails}
		r := newRig(t, conn.fakeConn)
		r.handle = New(&conn, r.policy, r.returned)
		err := r.handle.BeginTransaction(t.Context())
		require.ErrorIs(t, err, backend.ErrSessionLost)
		require.True(t, backend.SafeToRetry(err))
		require.NotContains(t, conn.Log(), "Begin")
		_ = r.handle.Close()
		require.ErrorIs(t, r.discarded(), backend.ErrSessionLost)
	})
}
