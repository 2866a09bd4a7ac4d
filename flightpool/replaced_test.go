package flightpool

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/testserver"
)

// replacedProgram is what a handle does; each step may find its session
// replaced.
type replacedProgram struct {
	r    *rig
	s    *SessionHandle
	log  *PreparedQuery
	told int // rows that the handle was told are stored
	inTx int // rows of the open transaction
}

var replacedSteps = map[string]func(p *replacedProgram) error{
	"begin": func(p *replacedProgram) error { return p.s.BeginTransaction(p.r.Context()) },
	"insert": func(p *replacedProgram) error {
		_, err := p.s.Update(p.r.Context(), "INSERT INTO t VALUES (1)")
		if err == nil {
			p.inTx++
		}
		return err
	},
	"slow": func(p *replacedProgram) error {
		_, err := p.s.Update(p.r.Context(), "SELECT sleep('16m')")
		return err
	},
	"read": func(p *replacedProgram) error {
		_, err := firstValue(p.r.Context(), p.s, "SELECT count(*) FROM t")
		return err
	},
	"prepare": func(p *replacedProgram) (err error) {
		p.log, err = p.s.PrepareQuery(p.r.Context(), "UPDATE log SET a = ?")
		return err
	},
	"prepareOther": func(p *replacedProgram) error {
		_, err := p.s.PrepareQuery(p.r.Context(), "DELETE FROM keep WHERE a = ?")
		return err
	},
	"runPrepared": func(p *replacedProgram) error {
		if p.log == nil {
			return nil
		}
		_, err := p.log.Update(p.r.Context(), ints("p", 7))
		return err
	},
	"set": func(p *replacedProgram) error {
		_, err := p.s.Update(p.r.Context(), "SET search_path = 'mine'")
		return err
	},
	"show": func(p *replacedProgram) error {
		v, err := firstValue(p.r.Context(), p.s, "SHOW search_path")
		if err == nil && v != "mine" {
			return fmt.Errorf("the setting has changed to %q and nobody said so", v)
		}
		return err
	},
	"ping": func(p *replacedProgram) error { return p.s.Ping(p.r.Context()) },
	"tables": func(p *replacedProgram) error {
		res, err := p.s.Metadata(p.r.Context(), backend.MetadataRequest{Kind: backend.MetadataTables})
		if err != nil {
			return err
		}
		return res.Close()
	},
	"closePrepared": func(p *replacedProgram) error {
		_ = p.log.Close(p.r.Context()) // a new session knows no such statement
		return nil
	},
	"commit": func(p *replacedProgram) error {
		err := p.s.Commit(p.r.Context())
		if err == nil {
			p.told += p.inTx
		}
		p.inTx = 0
		return err
	},
}

var replacedPrograms = []string{
	"begin insert insert commit",
	"begin insert slow insert commit",
	"begin insert slow prepareOther commit",
	"begin insert slow read commit begin insert commit",
	"prepare begin insert prepareOther runPrepared commit",
	"prepare prepareOther runPrepared",
	"set show read show",
	"set begin insert show commit show",
	"set ping show",
	"set tables show",
	"prepare set closePrepared show",
}

// A server that forgets sessions in silence, whose ids start afresh in the next.
func TestAReplacedSessionIsNeverTakenForTheHandles(t *testing.T) {
	profile := testserver.SwanLake()
	profile.JanitorEvery = 0
	for name, replace := range map[string]func(r *rig){
		"long idle": func(*rig) { time.Sleep(16 * time.Minute) },
		"at once":   func(r *rig) { r.srv.Faults().EvictSessions() },
	} {
		for _, program := range replacedPrograms {
			if name == "at once" && strings.Contains(program, "show") {
				continue // reads are not proven while the last statement is recent
			}
			steps := strings.Fields(program)
			for at := 0; at <= len(steps); at++ {
				t.Run(fmt.Sprintf("%s/%s/%d", name, program, at), func(t *testing.T) {
					inBubble(t, profile, Config{MaxSize: 2, MaxLifetime: -1, HealthCheck: HealthCheck{Interval: -1}}, func(r *rig) {
						runReplaced(r, steps, at, replace)
					})
				})
			}
		}
	}
}

func runReplaced(r *rig, steps []string, at int, replace func(*rig)) {
	r.exec("CREATE TABLE t (a BIGINT)")
	r.exec("CREATE TABLE log (a BIGINT)")
	r.exec("CREATE TABLE keep (a BIGINT)")
	r.exec("INSERT INTO keep VALUES (7)")
	p := &replacedProgram{r: r, s: r.session()}
	for i, step := range steps {
		if i == at {
			replace(r)
		}
		err := replacedSteps[step](p)
		if err == nil {
			continue
		}
		require.False(r, i < at && !strings.Contains(strings.Join(steps[:i], " "), "slow"), "%s failed before anything was replaced: %v", step, err)
		require.True(r, errors.Is(err, backend.ErrSessionLost), "%s: %v", step, err)
		break
	}
	_ = p.s.Close()
	r.srv.Faults().EvictSessions()
	require.Equal(r, fmt.Sprint(p.told), r.value(r.pool, "SELECT count(*) FROM t"), "what was told is what is stored")
	require.Equal(r, "1", r.value(r.pool, "SELECT count(*) FROM keep"), "no other statement was run")
}

func TestTyposDoNotLockTheServerOut(t *testing.T) {
	inBubble(t, testserver.SwanLake(), Config{MaxSize: 2, AcquireTimeout: time.Second}, func(r *rig) {
		for range 150 {
			_, err := r.pool.Update(r.Context(), "INSRT INTO t VALUES (1)")
			require.Equal(r, FaultStatement, backend.FaultIn(err))
		}
		r.value(r.pool, "SELECT 1")
		require.LessOrEqual(r, r.srv.Ledger().Snapshot().SessionsOpened, 2)
		r.srv.Faults().EvictSessions()
	})
}

func TestACommitConflictLeavesTheHandleUsable(t *testing.T) {
	for _, profile := range []testserver.Profile{testserver.Strict(), testserver.SwanLake()} {
		t.Run(profile.Name, func(t *testing.T) {
			inBubble(t, profile, Config{MaxSize: 3}, func(r *rig) {
				r.exec("CREATE TABLE t (id BIGINT PRIMARY KEY)")
				a, b := r.session(), r.session()
				insert := func(id int) func(context.Context, *SessionHandle) error {
					return func(ctx context.Context, s *SessionHandle) error {
						_, err := s.Update(ctx, fmt.Sprintf("INSERT INTO t VALUES (%d)", id))
						return err
					}
				}
				for i := range 5 {
					err := b.WithTransaction(r.Context(), func(ctx context.Context, b *SessionHandle) error {
						if err := insert(i)(ctx, b); err != nil {
							return err
						}
						return a.WithTransaction(ctx, insert(i))
					})
					require.Error(r, err)
					require.NoError(r, b.WithTransaction(r.Context(), insert(100+i)), "the handle goes on")
				}
				require.NoError(r, a.Close())
				require.NoError(r, b.Close())
				require.Equal(r, "10", r.value(r.pool, "SELECT count(*) FROM t"))
				require.LessOrEqual(r, r.srv.Ledger().Snapshot().SessionsOpened, 3)
				r.srv.Faults().EvictSessions()
			})
		})
	}
}

// Servers without transactions replace sessions too, and some that know their transactions.
func TestASettingIsNotLostInSilenceWithItsSession(t *testing.T) {
	for _, tc := range []struct {
		profile testserver.Profile
		cfg     Config
	}{
		{testserver.SwanLake(), Config{}},
		{testserver.ClickHouse(), Config{SessionHeader: "x-clickhouse-session-id"}},
		{testserver.Dremio(), Config{}},
		{expiring(testserver.Strict()), Config{}},
		{expiring(testserver.GizmoSQL()), Config{Auth: BasicAuth("ann", "secret")}},
	} {
		t.Run(tc.profile.Name, func(t *testing.T) {
			tc.cfg.MaxSize, tc.cfg.MaxLifetime, tc.cfg.HealthCheck.Interval = 1, -1, -1
			inBubble(t, tc.profile, tc.cfg, func(r *rig) {
				r.exec("CREATE TABLE t (a BIGINT)")
				s := r.session()
				_, err := s.Update(r.Context(), "SET search_path = 'mine'")
				require.NoError(r, err)
				time.Sleep(3 * time.Hour)
				_, err = s.Update(r.Context(), "INSERT INTO t VALUES (1)")
				require.ErrorIs(r, err, backend.ErrSessionLost)
				_ = s.Close()
				require.Zero(r, r.executions("INSERT INTO t VALUES (1)"))
				r.srv.Faults().EvictSessions()
			})
		})
	}
}

// expiring is a server whose sessions end after an hour, as GizmoSQL's do where that is configured.
func expiring(p testserver.Profile) testserver.Profile {
	p.SessionTTL = time.Hour
	return p
}

// A server whose answer names another session by its cookie.
func TestAnAnswerOfAnotherSessionIsNoAnswer(t *testing.T) {
	strict, dremio := testserver.Strict(), testserver.Dremio()
	strict.SessionKey, strict.FreshCookie, dremio.FreshCookie = testserver.ByCookie, true, true
	risks := map[string]func(r *rig, s *SessionHandle) error{
		"nothing": func(*rig, *SessionHandle) error { return nil },
		"setting": func(r *rig, s *SessionHandle) error {
			_, err := s.Update(r.Context(), "SET search_path = 'mine'")
			return err
		},
		"temporary table": func(r *rig, s *SessionHandle) error {
			_, err := s.Update(r.Context(), "CREATE TEMP TABLE mine (a BIGINT)")
			return err
		},
		"prepared statement": func(r *rig, s *SessionHandle) error {
			_, err := s.PrepareQuery(r.Context(), "SELECT 1")
			return err
		},
		"option": func(r *rig, s *SessionHandle) error { return s.SetOption(r.Context(), "catalog", "c") },
	}
	calls := map[string]func(r *rig, s *SessionHandle) error{
		"query": func(r *rig, s *SessionHandle) error {
			_, err := firstValue(r.Context(), s, "SELECT 1")
			return err
		},
		"update": func(r *rig, s *SessionHandle) error {
			_, err := s.Update(r.Context(), "INSERT INTO t VALUES (1)")
			return err
		},
		"with parameters": func(r *rig, s *SessionHandle) error {
			batch := ints("a", 1)
			defer batch.Release()
			_, err := s.UpdateWithRecordBatch(r.Context(), "INSERT INTO t VALUES (?)", batch)
			return err
		},
		"catalogue": func(r *rig, s *SessionHandle) error {
			res, err := s.Metadata(r.Context(), backend.MetadataRequest{Kind: backend.MetadataTables})
			if err == nil {
				res.Release()
			}
			return err
		},
		"options": func(r *rig, s *SessionHandle) error {
			_, err := s.Options(r.Context())
			return err
		},
		"set option": func(r *rig, s *SessionHandle) error { return s.SetOption(r.Context(), "schema", "s") },
		"prepare": func(r *rig, s *SessionHandle) error {
			_, err := s.PrepareQuery(r.Context(), "SELECT 2")
			return err
		},
		"ping": func(r *rig, s *SessionHandle) error { return s.Ping(r.Context()) },
	}
	several := map[string]bool{"with parameters": true, "set option": true, "prepare": true}
	for _, profile := range []testserver.Profile{strict, dremio} {
		for risk, take := range risks {
			for name, call := range calls {
				t.Run(profile.Name+"/"+risk+"/"+name, func(t *testing.T) {
					inBubble(t, profile, Config{MaxSize: 1, HealthCheck: HealthCheck{Interval: -1}}, func(r *rig) {
						r.exec("CREATE TABLE t (a BIGINT)")
						s := r.session()
						require.NoError(r, take(r, s))
						r.srv.Faults().EvictSessions()
						err := call(r, s)
						switch {
						case risk == "nothing" && several[name]:
							require.ErrorIs(r, err, backend.ErrSessionLost, "its second request names what the first has made")
						case risk == "nothing":
							require.NoError(r, err)
						default:
							require.ErrorIs(r, err, backend.ErrSessionReplaced)
							require.ErrorIs(r, err, backend.ErrSessionLost)
							changed := r.executions("INSERT INTO t VALUES (1)")+r.executions("INSERT INTO t VALUES (?)") > 0
							require.False(r, changed && backend.SafeToRetry(err), "%v", err)
							require.False(r, changed && profile.Name == "dremio", "a change is proven there before it is sent")
						}
						_ = s.Close()
						require.Equal(r, "1", r.value(r.pool, "SELECT 1"), "on another connection")
					})
				})
			}
		}
	}
}

// Nor is it where the session was prepared for all who borrow it, though the call itself has nothing to lose.
func TestAnAnswerOfAnotherSessionThanThatOfOnConnectIsNone(t *testing.T) {
	profile := testserver.Strict()
	profile.SessionKey, profile.FreshCookie = testserver.ByCookie, true
	inBubble(t, profile, Config{MaxSize: 1, HealthCheck: HealthCheck{Interval: -1}, DisableRetry: true, OnConnect: paint}, func(r *rig) {
		require.Equal(r, "blue", r.value(r.pool, colour))
		r.srv.Faults().EvictSessions()
		_, err := firstValue(r.Context(), r.pool, "SELECT 1")
		require.ErrorIs(r, err, backend.ErrSessionReplaced)
		require.Equal(r, "blue", r.value(r.pool, colour))
		s := r.session()
		r.srv.Faults().EvictSessions()
		_, err = firstValue(r.Context(), s, "SELECT 1")
		require.ErrorIs(r, err, backend.ErrSessionReplaced)
		_ = s.Close()
		require.Equal(r, "blue", r.value(r.pool, colour))
	})
}

// A session that the server puts in the place of a transaction's confirms its COMMIT, also where that
// happens when the COMMIT is on its way.
func TestACommitThatAnotherSessionConfirmsIsUnknown(t *testing.T) {
	inBubble(t, testserver.SwanLake(), Config{MaxSize: 1, HealthCheck: HealthCheck{Interval: -1}}, func(r *rig) {
		r.exec("CREATE TABLE t (a BIGINT)")
		tx := r.begin()
		_, err := tx.Update(r.Context(), "INSERT INTO t VALUES (1)")
		require.NoError(r, err)
		r.srv.Faults().Set(testserver.Fault{On: testserver.OnDoGet, After: true, Times: 1, Do: testserver.Evict()})
		err = tx.Commit(r.Context())
		require.ErrorIs(r, err, ErrCommitUnknown)
		require.ErrorIs(r, err, ErrSessionLost)
		require.False(r, SafeToRetry(err))
		r.srv.Faults().EvictSessions()
	})
}

// A server that counts its handles gives that of the proof again, to what is the first to be prepared
// in a session that has replaced another. The proof would run it.
func TestNoProofRunsWhatWasPrepared(t *testing.T) {
	inBubble(t, testserver.SwanLake(), Config{MaxSize: 1, HealthCheck: HealthCheck{Interval: -1}}, func(r *rig) {
		r.exec("CREATE TABLE t (a BIGINT)")
		s := r.session()
		_, err := s.PrepareQuery(r.Context(), "SELECT 1")
		require.NoError(r, err)
		r.srv.Faults().Set(testserver.Fault{On: testserver.OnDoGet, After: true, Times: 1, Do: testserver.Evict()})
		_, err = s.PrepareQuery(r.Context(), "INSERT INTO t VALUES (1)")
		require.ErrorIs(r, err, ErrSessionLost)
		_, err = s.Update(r.Context(), "INSERT INTO t VALUES (2)")
		require.ErrorIs(r, err, ErrSessionLost)
		_ = s.Close()
		require.Equal(r, "0", r.value(r.pool, "SELECT count(*) FROM t"))
		r.srv.Faults().EvictSessions()
	})
}
