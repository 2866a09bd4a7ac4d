package flightpool

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/cancel"
	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/session"
	"github.com/flightpool/flightpool/testserver"
)

// A callback that panics, or ends its goroutine, during an open.
var badCallbacks = map[string]func(){
	"panic":  func() { panic("no") },
	"Goexit": runtime.Goexit,
}

func TestABadHealthHookLosesNoConnection(t *testing.T) {
	for name, bad := range badCallbacks {
		t.Run(name, func(t *testing.T) {
			withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
				back := time.Now().Add(time.Minute)
				p, err := New(t.Context(), "grpc://server:1", Config{
					Dialer: downUntil(srv, back), MinIdle: -1, HealthCheck: HealthCheck{FailureThreshold: 1, UnhealthyAfter: -1, RecoveryThreshold: 1},
					Hooks: Hooks{Health: func(reason error) {
						if reason == nil {
							bad()
						}
					}},
				})
				require.NoError(t, err)
				require.Error(t, p.Ping(t.Context()))
				time.Sleep(2 * time.Minute)
				if err = p.Ping(t.Context()); name == "panic" {
					require.NoError(t, err, "it is the hook's failure alone")
					require.EqualValues(t, 1, p.Stats().HookFailures)
					require.ErrorContains(t, p.Stats().LastHookError, "no")
				}
				require.NoError(t, p.Ping(t.Context()))
				require.NoError(t, p.Close(t.Context()))
				require.NoError(t, srv.Ledger().Wait(t.Context(), func(s testserver.Snapshot) bool { return s.Conns == 0 }))
			})
		})
	}
}

// A badLayer's Wrap does not return.
type badLayer struct{ bad func() }

func (l badLayer) Wrap(context.Context, backend.Conn) (backend.Conn, error) {
	l.bad()
	return nil, errors.New("unreachable")
}

func (badLayer) Close() error { return nil }

func TestABadLayerLosesNoConnection(t *testing.T) {
	for name, bad := range badCallbacks {
		t.Run(name, func(t *testing.T) {
			withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
				_, err := New(t.Context(), "grpc://server:1", Config{Dialer: srv.Dial, Layer: badLayer{bad}})
				require.ErrorContains(t, err, "callback")
				require.NoError(t, srv.Ledger().Wait(t.Context(), func(s testserver.Snapshot) bool { return s.Conns == 0 }))
			})
		})
	}
}

// A badConn does not answer its proof.
type badConn struct {
	backend.Conn
	bad    func()
	closed *atomic.Int64
}

func (c badConn) Query(context.Context, string, backend.Call) (backend.Stream, error) {
	c.bad()
	return nil, errors.New("unreachable")
}

func (c badConn) Close() error { c.closed.Add(1); return nil }

func TestABadProofLosesNoConnection(t *testing.T) {
	for name, bad := range badCallbacks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var opened, closed atomic.Int64
				open := func(context.Context) (backend.Conn, error) {
					opened.Add(1)
					return badConn{bad: bad, closed: &closed}, nil
				}
				_, err := NewWith(t.Context(), open, Config{})
				require.Error(t, err)
				require.Equal(t, opened.Load(), closed.Load())
			})
		})
	}
}

func TestPanickingHooksFailNoCall(t *testing.T) {
	cfg := Config{MaxSize: 2, OnReturn: session.ResetSQL("SELECT 2"), Hooks: Hooks{
		Cancelled:    func(string, cancel.Report) { panic("no") },
		Retried:      func(string, error) { panic("no") },
		SessionReset: func(time.Duration, error) { panic("no") },
		RolledBack:   func() { panic("no") },
	}}
	inBubble(t, testserver.Strict(), cfg, func(r *rig) {
		require.NoError(r, r.pool.WaitReady(r.Context(), 2)) // or MinIdle has another opened beside the call, which the fault may strike
		r.srv.Faults().Set(testserver.Fault{On: testserver.OnGetFlightInfo, Times: 1, Do: testserver.Kill()})
		require.Equal(r, "1", r.value(r.pool, "SELECT 1"), "repeated")
		for range 5 { // more than there are connections
			s := r.session()
			require.NoError(r, s.BeginTransaction(r.Context()))
			require.NoError(r, s.Close())
		}
		ctx, stop := context.WithTimeout(r.Context(), time.Second)
		defer stop()
		_, err := firstValue(ctx, r.pool, "SELECT sleep('60s')")
		require.ErrorIs(r, err, context.DeadlineExceeded)
		r.value(r.pool, "SELECT 1")
		synctest.Wait()
		s := r.pool.Stats()
		require.EqualValues(r, s.Retries+s.Resets+s.RolledBack+s.CancelsConfirmed+s.CancelsUnconfirmed, s.HookFailures)
		require.NotZero(r, s.Retries)
		require.NotZero(r, s.RolledBack)
	})
}

func TestNewDoesNotOutlastItsContext(t *testing.T) {
	const deaf = 10 * time.Minute // how long an open goes on that does not heed its context
	for name, New := range map[string]func(context.Context) error{
		"open": func(ctx context.Context) error {
			_, err := NewWith(ctx, func(context.Context) (backend.Conn, error) { time.Sleep(deaf); return nil, errAway }, Config{})
			return err
		},
		"Dialer": func(ctx context.Context) error {
			_, err := New(ctx, "grpc://server:1", Config{DialTimeout: time.Hour, Dialer: func(context.Context, string) (net.Conn, error) { time.Sleep(deaf); return nil, errAway }})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithTimeout(t.Context(), time.Second)
				defer stop()
				start := time.Now()
				require.ErrorIs(t, New(ctx), context.DeadlineExceeded)
				require.LessOrEqual(t, time.Since(start), time.Second+abandonGrace)
				time.Sleep(2 * deaf) // and nothing is left of it then
			})
		})
	}
}

// A connection may come back between the look for an idle one and that at health.
func TestAnUnhealthyServerWithAnIdleConnectionIsUsed(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1, HealthCheck: HealthCheck{UnhealthyAfter: -1}}, func(r *rig) {
		for range 3 {
			r.pool.health.failed(down(), 0)
			time.Sleep(time.Nanosecond)
		}
		require.NotNil(r, r.pool.Stats().UnhealthyReason)
		require.Equal(r, 1, r.pool.Stats().Idle)
		_, err := r.pool.allowWait()
		require.NoError(r, err)
		loan, ok := r.pool.conns.TryAcquire()
		require.True(r, ok)
		_, err = r.pool.allowWait()
		require.NoError(r, err, "in use")
		require.NoError(r, loan.Release())
	})
}

// What is done for a caller after a hook, giving the session back above all, is
// done whatever the hook does.
func TestAHookThatEndsItsGoroutineLeavesNothing(t *testing.T) {
	hooks := map[string]func(h *Hooks, bad func()){
		"Cancelled":    func(h *Hooks, bad func()) { h.Cancelled = func(string, cancel.Report) { bad() } },
		"Retried":      func(h *Hooks, bad func()) { h.Retried = func(string, error) { bad() } },
		"SessionReset": func(h *Hooks, bad func()) { h.SessionReset = func(time.Duration, error) { bad() } },
		"RolledBack":   func(h *Hooks, bad func()) { h.RolledBack = func() { bad() } },
		"Released":     func(h *Hooks, bad func()) { h.Connections.Released = func(time.Duration) { bad() } },
		"Acquired":     func(h *Hooks, bad func()) { h.Connections.Acquired = func(time.Duration) { bad() } },
		"WaitStart":    func(h *Hooks, bad func()) { h.Connections.WaitStart = func() { bad() } },
		"WaitEnd":      func(h *Hooks, bad func()) { h.Connections.WaitEnd = func(time.Duration, error) { bad() } },
	}
	for hook, set := range hooks {
		for name, end := range badCallbacks {
			t.Run(hook+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory, Profile: testserver.Strict()})
					require.NoError(t, err)
					defer func() { require.NoError(t, srv.Close()) }()
					var on atomic.Bool
					cfg := Config{MaxSize: 2, Dialer: srv.Dial, OnReturn: session.ResetSQL("SELECT 2")}
					set(&cfg.Hooks, func() {
						if on.Load() {
							end()
						}
					})
					p, err := New(t.Context(), "grpc://server:1", cfg)
					require.NoError(t, err)
					on.Store(true)
					apart := func(what string, f func(ctx context.Context)) {
						done := make(chan struct{})
						go func() {
							defer close(done)
							ctx, stop := context.WithTimeout(t.Context(), time.Second)
							defer stop()
							f(ctx)
						}()
						select {
						case <-done:
						case <-time.After(time.Minute):
							t.Errorf("%s: hangs", what)
						}
					}
					for range 3 {
						apart("cancel", func(ctx context.Context) { _, _ = firstValue(ctx, p, "SELECT sleep('60s')") })
						time.Sleep(10 * time.Second)
						apart("retry", func(ctx context.Context) {
							srv.Faults().Set(testserver.Fault{On: testserver.OnGetFlightInfo, Times: 1, Do: testserver.Kill()})
							_, _ = firstValue(ctx, p, "SELECT 1")
						})
						apart("session", func(ctx context.Context) {
							s, err := p.AcquireSession(ctx)
							if err != nil {
								return
							}
							defer func() { _ = s.Close() }()
							_ = s.BeginTransaction(ctx)
						})
						apart("session cancel", func(ctx context.Context) {
							s, err := p.AcquireSession(ctx)
							if err != nil {
								return
							}
							defer func() { _ = s.Close() }()
							_ = s.BeginTransaction(ctx)
							_, _ = firstValue(ctx, s, "SELECT sleep('60s')")
						})
						time.Sleep(time.Minute)
					}
					on.Store(false)
					time.Sleep(time.Minute + ms)
					s := p.Stats()
					if s.InUse != 0 || s.Waiting != 0 {
						t.Errorf("of %d loans, %d are out, and %d callers wait", s.Acquired, s.InUse, s.Waiting)
					}
					ctx, stop := context.WithTimeout(t.Context(), time.Second)
					if _, err := firstValue(ctx, p, "SELECT 1"); err != nil {
						t.Errorf("afterwards: %v", err)
					}
					stop()
					ctx, stop = context.WithTimeout(t.Context(), time.Minute)
					defer stop()
					if err := p.Close(ctx); err != nil {
						t.Errorf("Close: %v", err)
					}
				})
			})
		}
	}
}

func TestNewEndsAlthoughAHookEndsItsGoroutine(t *testing.T) {
	withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
		cfg := Config{Dialer: srv.Dial}
		cfg.Hooks.Connections.Released = func(time.Duration) { runtime.Goexit() }
		made := make(chan *FlightSQLPool, 1)
		go func() {
			p, err := New(t.Context(), "grpc://server:1", cfg)
			if err != nil {
				t.Error(err)
			}
			made <- p
		}()
		select {
		case p := <-made:
			require.NoError(t, p.Close(t.Context()))
		case <-time.After(time.Hour):
			t.Fatal("New does not return")
		}
	})
}

func TestATokenSourceThatEndsItsGoroutineHasFailed(t *testing.T) {
	for name, bad := range badCallbacks {
		t.Run(name, func(t *testing.T) {
			withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
				calls := 0
				source := func(context.Context) (string, time.Time, error) {
					if calls++; calls == 1 {
						bad()
					}
					return "t", time.Time{}, nil
				}
				p, err := New(t.Context(), "grpc://server:1", Config{Dialer: srv.Dial, MinIdle: -1, Auth: TokenAuth(source)})
				require.NoError(t, err)
				err = p.Ping(t.Context()) // without a deadline: it hears of the failure
				require.ErrorContains(t, err, "token source: ")
				require.ErrorContains(t, err, "callback")
				require.NoError(t, p.Ping(t.Context()))
				require.Equal(t, 2, calls)
				require.NoError(t, p.Close(t.Context()))
			})
		})
	}
}

// A badCloser is a Layer whose Close does not return.
type badCloser struct{ bad func() }

func (badCloser) Wrap(_ context.Context, c backend.Conn) (backend.Conn, error) { return c, nil }
func (l badCloser) Close() error                                               { l.bad(); return nil }

func TestALayersCloseThatEndsItsGoroutineIsAnErrorOfClose(t *testing.T) {
	for name, bad := range badCallbacks {
		t.Run(name, func(t *testing.T) {
			withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
				p, err := New(t.Context(), "grpc://server:1", Config{Dialer: srv.Dial, Layer: badCloser{bad}})
				require.NoError(t, err)
				ended := make(chan error, 1)
				go func() { ended <- p.Close(t.Context()) }()
				select {
				case err = <-ended:
					require.ErrorContains(t, err, "callback")
				case <-time.After(time.Hour):
					t.Fatal("Close does not return")
				}
				_, err = New(t.Context(), "grpc://server:1", Config{Dialer: refused, Layer: badCloser{bad}})
				require.ErrorContains(t, err, "callback")
			})
		})
	}
}

// badStops is a budget whose registrations do not end as they should. It notes those that were to.
type badStops struct {
	lease.Leases
	bad   func()
	ended []string
}

func (b *badStops) Valid() error { return nil }
func (b *badStops) OnRevoke(func(lease.Revocation)) func() {
	return func() { b.ended = append(b.ended, "revoke"); b.bad() }
}

func TestABudgetThatDoesNotLetGoIsAnErrorOfClose(t *testing.T) {
	hangs := make(chan struct{})
	bads := map[string]func(){"hangs": func() { <-hangs }}
	maps.Copy(bads, badCallbacks)
	for name, bad := range bads {
		t.Run(name, func(t *testing.T) {
			withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
				hangs = make(chan struct{})
				budget := &badStops{Leases: lease.NewLeases("x", 3), bad: bad}
				p, err := New(t.Context(), "grpc://server:1", Config{Dialer: srv.Dial, Leases: budget, CloseTimeout: 2 * time.Second})
				require.NoError(t, err)
				began, ended := time.Now(), make(chan error, 1)
				go func() { ended <- p.Close(t.Context()) }()
				select {
				case err = <-ended:
					require.Error(t, err)
					require.LessOrEqual(t, time.Since(began), 2*time.Second)
				case <-time.After(time.Hour):
					t.Error("Close does not return")
				}
				close(hangs)
				synctest.Wait()
				require.Equal(t, []string{"revoke"}, budget.ended)
				require.Zero(t, srv.Ledger().Snapshot().Conns)
			})
		})
	}
}

func refused(context.Context, string) (net.Conn, error) { return nil, errAway }

// badHandler is a slog.Handler that does not return.
type badHandler struct{ bad func() }

func (badHandler) Enabled(context.Context, slog.Level) bool    { return true }
func (h badHandler) Handle(context.Context, slog.Record) error { h.bad(); return nil }
func (h badHandler) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h badHandler) WithGroup(string) slog.Handler             { return h }

func TestABadLoggerIsCountedAndHoldsNothingUp(t *testing.T) {
	for name, bad := range badCallbacks {
		t.Run(name, func(t *testing.T) {
			withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
				told := 0
				cfg := Config{Dialer: srv.Dial, Logger: slog.New(badHandler{bad})}
				cfg.Hooks.Cancelled = func(string, cancel.Report) { told++ }
				cfg.Hooks.Health = func(error) { told++ }
				cfg.Hooks.Connections.OpenFailed = func(error, time.Duration) { told++ }
				cfg.Hooks.Connections.Leaked = func(reservoir.Leak) { told++ }
				cfg.Hooks.Connections.CloseStalled = func(reservoir.Reason) { told++ }
				p, err := New(t.Context(), "grpc://server:1", cfg)
				require.NoError(t, err)
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					defer func() { _ = recover() }()
					p.cancelled("Query", cancel.Report{}) // not confirmed
					p.healthChanged(errAway)
					h := p.wrapHooks()
					h.OpenFailed(errAway, time.Second)
					h.Leaked(reservoir.Leak{})
					h.CloseStalled(reservoir.Shutdown)
				}()
				time.Sleep(time.Second)
				<-ended
				require.Equal(t, 5, told)
				require.EqualValues(t, 5, p.Stats().HookFailures)
				require.Error(t, p.Stats().LastHookError)
				require.NoError(t, p.Close(t.Context()))
			})
		})
	}
}

// What gRPC calls, and what reads ahead, runs on goroutines where nobody could
// recover.
func TestABadDialerHasFailed(t *testing.T) {
	for name, bad := range badCallbacks {
		t.Run(name, func(t *testing.T) {
			withServer(t, testserver.Options{}, func(t *testing.T, srv *testserver.Server) {
				dials := 0
				dialer := func(ctx context.Context, addr string) (net.Conn, error) {
					if dials++; dials == 1 {
						bad()
					}
					return srv.Dial(ctx, addr)
				}
				p, err := New(t.Context(), "grpc://server:1", Config{Dialer: dialer, MinIdle: -1})
				require.NoError(t, err)
				start := time.Now()
				err = p.Ping(t.Context())
				require.ErrorContains(t, err, "Config.Dialer: a callback ")
				checkPanicIsFound(t, err)
				require.Less(t, time.Since(start), time.Second)
				require.NoError(t, p.Ping(t.Context()))
				require.NoError(t, p.Close(t.Context()))
			})
		})
	}
}

// checkPanicIsFound expects that errors.As finds the panic which an error tells of.
func checkPanicIsFound(t require.TestingT, err error) {
	if strings.Contains(err.Error(), "panicked") {
		require.ErrorAs(t, err, new(*reservoir.PanicError))
	}
}

func TestABadLocationsAllowsNothing(t *testing.T) {
	for name, bad := range badCallbacks {
		for _, endpoints := range []int{1, 3} {
			t.Run(fmt.Sprint(name, endpoints), func(t *testing.T) {
				cfg := Config{Locations: func(*url.URL) (bool, bool) { bad(); return true, true }}
				inBubble(t, testserver.Strict(), cfg, func(r *rig) {
					r.srv.Faults().Set(testserver.Fault{On: testserver.OnGetFlightInfo, After: true, SQL: "SELECT 1", Do: testserver.Rewrite(func(i *flight.FlightInfo) {
						i.Endpoint[0].Location = []*flight.Location{{Uri: "grpc://server:2"}, {Uri: "grpc://server:3"}}
						for len(i.Endpoint) < endpoints {
							i.Endpoint = append(i.Endpoint, i.Endpoint[0])
						}
					})})
					_, err := firstValue(r.Context(), r.pool, "SELECT 1")
					require.ErrorContains(r, err, "Config.Locations: a callback ")
					checkPanicIsFound(r, err)
				})
			})
		}
	}
}

func TestABadTLSCallbackHasFailed(t *testing.T) {
	ca := newAuthority(t)
	srv := serve(t, testserver.Options{TLS: &tls.Config{Certificates: []tls.Certificate{ca.issue("server")}, ClientAuth: tls.RequestClientCert}})
	for name, bad := range badCallbacks {
		for field, set := range map[string]func(c *tls.Config){
			"VerifyConnection": func(c *tls.Config) { c.VerifyConnection = func(tls.ConnectionState) error { bad(); return nil } },
			"VerifyPeerCertificate": func(c *tls.Config) {
				c.VerifyPeerCertificate = func([][]byte, [][]*x509.Certificate) error { bad(); return nil }
			},
			"GetClientCertificate": func(c *tls.Config) {
				c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { bad(); return nil, errAway }
			},
		} {
			t.Run(field+"/"+name, func(t *testing.T) {
				cfg := Config{TLS: &tls.Config{RootCAs: ca.pool}}
				set(cfg.TLS)
				_, err := New(t.Context(), "grpc+tls://"+srv.Addr(), cfg)
				require.ErrorContains(t, err, "TLS handshake: Config.TLS."+field+": a callback ")
				checkPanicIsFound(t, err)
			})
		}
	}
}

// A key may be a service's or a module's, asked by code of the user's.
func TestABadKeyOfACertificateHasFailed(t *testing.T) {
	ca := newAuthority(t)
	srv := serve(t, testserver.Options{TLS: &tls.Config{Certificates: []tls.Certificate{ca.issue("server")}, ClientAuth: tls.RequestClientCert}})
	for name, bad := range badCallbacks {
		for kind, set := range map[string]func(k badKey) any{
			"Sign":        func(k badKey) any { k.bad = bad; return k },
			"SignMessage": func(k badKey) any { k.bad = bad; return badMessageKey{k} },
			"Public":      func(k badKey) any { k.badPublic = bad; return k },
			"good":        func(k badKey) any { return badMessageKey{k} },
		} {
			for where, give := range map[string]func(c *tls.Config, cert tls.Certificate){
				"Certificates": func(c *tls.Config, cert tls.Certificate) { c.Certificates = []tls.Certificate{cert} },
				"GetClientCertificate": func(c *tls.Config, cert tls.Certificate) {
					c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
				},
			} {
				t.Run(kind+"/"+where+"/"+name, func(t *testing.T) {
					cfg := Config{TLS: &tls.Config{RootCAs: ca.pool}}
					cert := ca.issue("client")
					cert.PrivateKey = set(badKey{Signer: cert.PrivateKey.(crypto.Signer), bad: func() {}, badPublic: func() {}})
					give(cfg.TLS, cert)
					before := time.Now()
					if kind == "good" {
						works(t, "grpc+tls://"+srv.Addr(), cfg)
						return
					}
					pool, err := New(t.Context(), "grpc+tls://"+srv.Addr(), cfg)
					if err == nil { // Certificates without a key that fits the server are not shown
						require.Equal(t, "Public/Certificates", kind+"/"+where)
						require.NoError(t, pool.Close(t.Context()))
						return
					}
					require.ErrorContains(t, err, "TLS handshake: ")
					if kind != "Public" {
						require.ErrorContains(t, err, "the private key of a certificate: a callback ") // TLS keeps the text alone
					}
					require.Less(t, time.Since(before), 5*time.Second)
				})
			}
		}
	}
}

type badKey struct {
	crypto.Signer
	bad, badPublic func()
}

func (k badKey) Public() crypto.PublicKey { k.badPublic(); return k.Signer.Public() }

func (k badKey) Sign(rand io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	k.bad()
	return k.Signer.Sign(rand, digest, opts)
}

type badMessageKey struct{ badKey }

func (k badMessageKey) Sign(io.Reader, []byte, crypto.SignerOpts) ([]byte, error) {
	return nil, errAway
}

func (k badMessageKey) SignMessage(rand io.Reader, message []byte, opts crypto.SignerOpts) ([]byte, error) {
	k.bad()
	return crypto.SignMessage(k.Signer, rand, message, opts)
}

// The other functions of a tls.Config have no error of their own, or none that
// ends a handshake in each version of Go: that the program lives is what counts.
func TestABadPartOfTLSEndsNoProgram(t *testing.T) {
	ca := newAuthority(t)
	srv := serve(t, testserver.Options{TLS: &tls.Config{Certificates: []tls.Certificate{ca.issue("server")}}})
	for name, bad := range badCallbacks {
		for field, set := range map[string]func(c *tls.Config){
			"Time":               func(c *tls.Config) { c.Time = func() time.Time { bad(); return time.Now() } },
			"Rand":               func(c *tls.Config) { c.Rand = badPart(bad) },
			"KeyLogWriter":       func(c *tls.Config) { c.KeyLogWriter = badPart(bad) },
			"ClientSessionCache": func(c *tls.Config) { c.ClientSessionCache = badPart(bad) },
		} {
			t.Run(field+"/"+name, func(t *testing.T) {
				cfg := Config{TLS: &tls.Config{RootCAs: ca.pool}}
				set(cfg.TLS)
				pool, err := New(t.Context(), "grpc+tls://"+srv.Addr(), cfg)
				switch field {
				case "Time":
					require.ErrorContains(t, err, "0001-01-01")
				case "KeyLogWriter":
					require.ErrorContains(t, err, "Config.TLS.KeyLogWriter: a callback ")
				case "ClientSessionCache":
					require.NoError(t, err)
				}
				if err == nil {
					_, err = firstValue(t.Context(), pool, "SELECT 1")
					require.NoError(t, err)
					require.NoError(t, pool.Close(t.Context()))
				}
			})
		}
	}
}

type badPart func()

func (bad badPart) Read([]byte) (int, error)                   { bad(); return 0, errAway }
func (bad badPart) Write([]byte) (int, error)                  { bad(); return 0, errAway }
func (bad badPart) Get(string) (*tls.ClientSessionState, bool) { bad(); return nil, true }
func (bad badPart) Put(string, *tls.ClientSessionState)        { bad() }
