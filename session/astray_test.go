package session

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

// astrayRig is a rig whose session a bulk load has led elsewhere before it failed.
func astrayRig(t *testing.T, c *stateConn, inTx bool) *rig {
	r := stateRig(t, c)
	if inTx {
		r.policy.answeredQueries.add(searchPathQuery.key)
		begin(t, r.handle)
	}
	r.leadAstray(c)
	return r
}

func (r *rig) leadAstray(c *stateConn) {
	r.t.Helper()
	c.useParams = func() { c.settings["search_path"] = "bad.main" }
	batch := int64Batch(1)
	defer batch.Release()
	_, err := r.handle.UpdateWithRecordBatch(r.t.Context(), "INSERT INTO bad.t VALUES (?)", batch)
	require.Error(r.t, err)
	synctest.Wait()
}

func looksAtPlace(c *stateConn) (n int) {
	for _, sql := range c.Log() {
		if sql == searchPathQuery.sql || sql == "tx1: "+searchPathQuery.sql {
			n++
		}
	}
	return n
}

// A session that a bulk load has led elsewhere is led back before its next
// statement, once; where that fails no statement is sent.
func TestAStatementAfterABulkLoadThatFailedRunsWhereItBelongs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStateConn()
		r := astrayRig(t, c, false)
		exec("INSERT 1")(t, r.handle)
		require.Equal(t, "lake.main", c.settings["search_path"])
		looks := looksAtPlace(c)
		exec("INSERT 2")(t, r.handle)
		require.Equal(t, looks, looksAtPlace(c), "it is where it was")
		must(t, r.handle.Close())
		r.reused()
	})
	for name, tc := range map[string]struct {
		err error
		why string
	}{
		"a refusal": {sqlError("no place"), "led it elsewhere"},
		"a loss":    {transportError(), "connection reset"},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newStateConn()
			c.failOnce = map[string][]error{searchPathQuery.sql: {nil, tc.err}}
			r := astrayRig(t, c, false)
			_, err := r.handle.Update(t.Context(), "INSERT 1")
			require.ErrorIs(t, err, backend.ErrSessionLost, name)
			require.ErrorContains(t, err, tc.why, name)
			require.NotContains(t, c.Log(), "INSERT 1", name)
			require.ErrorContains(t, r.discarded(), tc.why, name)
			must(t, r.handle.Close())
		})
	}
}

// The connection of a session that was led elsewhere comes back when it is where
// it was, whatever is done with what the statements leave.
func TestASessionThatWasLedElsewhereIsLedBackAtItsEnd(t *testing.T) {
	for name, mode := range map[string]SessionReset{"auto": ResetAuto, "none": ResetNone, "sql": ResetSQL("RESET threads")} {
		for _, fails := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				c := newStateConn()
				if fails {
					c.failOnce = map[string][]error{searchPathQuery.sql: {nil, sqlError("no place")}}
				}
				r := stateRig(t, c)
				r.policy.OnReturn = mode
				r.leadAstray(c)
				err := r.handle.Close()
				if fails {
					require.ErrorContains(t, err, "no place", name)
					require.ErrorContains(t, r.discarded(), "no place", name)
					return
				}
				must(t, err)
				require.Equal(t, "lake.main", c.settings["search_path"], name)
				r.reused()
			})
		}
	}
}

// So it is behind a single call: statements of the owner's need not say where names are looked for.
func TestASingleCallThatLoadsLeavesNoSessionElsewhere(t *testing.T) {
	for name, mode := range map[string]SessionReset{"auto": ResetAuto, "none": ResetNone, "sql": ResetSQL("RESET threads")} {
		for _, table := range []string{"far.t", "bad.t"} { // which fails
			synctest.Test(t, func(t *testing.T) {
				c := newStateConn()
				r := stateRig(t, c)
				r.policy.OnReturn = mode
				r.handle = NewStateless(c, r.policy, r.returned)
				c.useParams = func() { c.settings["search_path"] = "far.main" }
				batch := int64Batch(1)
				defer batch.Release()
				_, err := r.handle.UpdateWithRecordBatch(t.Context(), "INSERT INTO "+table+" VALUES (?)", batch)
				require.Equal(t, table == "bad.t", err != nil, name)
				synctest.Wait()
				require.Equal(t, "lake.main", c.settings["search_path"], "%s: %s", name, table)
				r.reused()
			})
		}
	}
}

// An option may lead elsewhere: none is set where the session is elsewhere
// already and cannot be led back, which an aborted transaction does not allow.
func TestNoOptionIsSetInAnAbortedTransactionThatIsElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStateConn()
		r := astrayRig(t, c, true)
		require.ErrorIs(t, r.handle.SetOption(t.Context(), "a", "b"), backend.ErrTxAborted)
		require.NotContains(t, c.Log(), "SetOptions")
		must(t, r.handle.Rollback(t.Context()))
		must(t, r.handle.SetOption(t.Context(), "a", "b"))
		require.Equal(t, "lake.main", c.settings["search_path"])
		must(t, r.handle.Close())
		r.reused()

		c = newStateConn()
		r = stateRig(t, c)
		begin(t, r.handle)
		_, err := r.handle.Update(t.Context(), "INSERT bad")
		require.Error(t, err)
		must(t, r.handle.SetOption(t.Context(), "a", "b"))
		must(t, r.handle.Rollback(t.Context()))
		_ = r.handle.Close()
	})
}

// After a USE the table's name alone does not tell where a bulk load leads: what
// is seen there holds for that session alone, and is seen each time.
func TestWhatABulkLoadDoesAfterAUseIsLookedAtEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStateConn()
		r := stateRig(t, c)
		exec("USE other")(t, r.handle)
		batch := int64Batch(1)
		defer batch.Release()
		looks := []int{}
		for range 2 {
			before := looksAtPlace(c)
			_, err := r.handle.UpdateWithRecordBatch(t.Context(), "INSERT INTO t VALUES (?)", batch)
			must(t, err)
			synctest.Wait()
			looks = append(looks, looksAtPlace(c)-before)
		}
		require.Equal(t, []int{2, 2}, looks)
		must(t, r.handle.Close())
		r.reused()
	})
}

// A setting that several refused statements may have changed is read once at the
// end, and what cannot be read costs the connection.
func TestWhatRefusedStatementsMayHaveSetIsReadOnce(t *testing.T) {
	const read = "SELECT current_setting('threads')"
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newStateConn()
			c.fail = map[string]error{"SET threads = 1": sqlError("refused")}
			if fails {
				c.failOnce = map[string][]error{read: {nil, sqlError("no setting")}}
			}
			r := stateRig(t, c)
			for range 3 {
				_, err := r.handle.Update(t.Context(), "SET threads = 1")
				require.ErrorContains(t, err, "refused")
			}
			err := r.handle.Close()
			reads := 0
			for _, sql := range c.Log() {
				if sql == read {
					reads++
				}
			}
			require.Equal(t, 2, reads, "%q", c.Log())
			if fails {
				require.ErrorContains(t, err, "no setting")
				_ = r.discarded()
				return
			}
			must(t, err)
			r.reused()
		})
	}
}

// ResetSQL's statements follow no call that only read, also where the connection
// has to show that it works.
func TestAReadThatFailedIsNotFollowedByTheOwnersStatements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{fail: map[string]error{"SELECT 3": errors.New("?")}})
		r.policy.OnReturn = ResetSQL("RESET ALL")
		_, err := r.stateless().Query(t.Context(), "SELECT 3")
		require.Error(t, err)
		synctest.Wait()
		require.Equal(t, []string{"SELECT 3", "SELECT 1"}, r.conn.Log())
		r.reused()
	})
}

// A caller does not wait past its context for what the closing of its handle
// sends, also where the connection is discarded.
func TestACommitDoesNotWaitForTheClosingOfItsHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{forgives: true, work: map[string]time.Duration{"Commit": 100 * ms, "ClosePrepared": time.Second}})
		must(t, r.handle.BeginTransaction(t.Context()))
		ctx, stop := context.WithTimeout(t.Context(), 200*ms)
		defer stop()
		time.AfterFunc(50*ms, func() { _ = r.handle.Discard(errors.New("its owner's reason")) })
		start := time.Now()
		must(t, r.handle.Commit(ctx))
		require.LessOrEqual(t, time.Since(start), 200*ms)
		time.Sleep(time.Minute)
		require.ErrorContains(t, r.discarded(), "its owner's reason")
		r.clean()
	})
}

// What fn runs after it has ended the transaction itself is no part of it.
func TestTheRollbackBehindLeavesAloneWhatIsNotInTheTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		var res *QueryResult
		err := r.handle.WithTransaction(ctx, func(ctx context.Context, s *SessionHandle) error {
			must(t, s.Rollback(ctx))
			var err error
			res, err = s.Query(t.Context(), "SELECT 3")
			must(t, err)
			<-ctx.Done()
			return ctx.Err()
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		rows := 0
		for res.Next() {
			rows++
		}
		must(t, res.Err())
		require.Equal(t, 3, rows)
		res.Release()
		must(t, r.handle.Close())
		r.reused()
	})
}

// A rollback behind the caller that comes when the handle is being closed has
// nothing to do: the closing rolls back, and the connection is as good as before.
func TestARollbackBehindThatFindsItsHandleClosedCostsNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		r.policy.Go = func(f func()) { // what is done behind begins a little later
			go func() {
				time.Sleep(ms)
				f()
			}()
		}
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		err := r.handle.WithTransaction(ctx, func(ctx context.Context, s *SessionHandle) error {
			_, err := s.UpdateWithOptions(ctx, "INSERT SLOW 100ms", QueryOptions{NoCancel: true})
			return err
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(10 * ms)
		must(t, r.handle.Close())
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"Begin", "tx1: INSERT SLOW 100ms", "Rollback"}, r.conn.Log())
		r.reused()
	})
}

// An option is set where the session belongs, or not at all.
func TestNoOptionIsSetInASessionThatWasLedElsewhere(t *testing.T) {
	for name, fails := range map[string]bool{"it is led back": false, "it cannot be": true} {
		synctest.Test(t, func(t *testing.T) {
			c := newStateConn()
			if fails {
				c.failOnce = map[string][]error{searchPathQuery.sql: {nil, sqlError("no place")}}
			}
			r := astrayRig(t, c, false)
			err := r.handle.SetOption(t.Context(), "catalog", "lake3")
			require.Equal(t, !fails, slices.Contains(c.Log(), "SetOptions"), name)
			if fails {
				require.ErrorIs(t, err, backend.ErrSessionLost, name)
			} else {
				must(t, err)
				require.Equal(t, "lake.main", c.settings["search_path"], name)
			}
			_ = r.handle.Close()
		})
	}
}

// A refusal outside of transactions is looked behind nowhere: there is none to have been aborted.
func TestARefusalOutsideOfTransactionsIsNotLookedBehind(t *testing.T) {
	for name, inTx := range map[string]bool{"outside": false, "in a transaction": true} {
		for _, call := range []string{"Ping", "Options"} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, &fakeConn{fail: map[string]error{call: sqlError("no")}})
				if inTx {
					must(t, r.handle.BeginTransaction(t.Context()))
				}
				sent := r.sent(func() {
					if call == "Ping" {
						require.Error(t, r.handle.Ping(t.Context()))
						return
					}
					_, err := r.handle.Options(t.Context())
					require.Error(t, err)
				})
				require.Equal(t, inTx, len(sent) > 1, "%s, %s: %q", name, call, sent)
				_ = r.handle.Close()
			})
		}
	}
}
