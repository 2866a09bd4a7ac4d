package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/effect"
	"github.com/flightpool/flightpool/internal/errjoin"
)

// SetOption sets an option of the Flight session, such as the catalogue. What
// was there before is put back when the handle is closed, whatever
// Config.OnReturn says. Values are strings, bools, int64, float64 and []string;
// nil erases. Servers without session options fail it with FaultUnsupported. One
// that is refused leaves an open transaction as it was, or answers ErrTxAborted
// from then on if the server has aborted it. One that its caller leaves aborts it.
func (s *SessionHandle) SetOption(ctx context.Context, key string, value any) error {
	if list, ok := value.([]string); ok {
		value = slices.Clone(list) // it is read behind a caller who has left, too
	}
	c, err := s.begin(ctx, "SetOption", QueryOptions{}, finishWithinBudget)
	if err != nil {
		return err
	}
	tx := s.txState()
	c.beforeSend = func(ctx context.Context) error {
		if err := s.proveSession(ctx, accessUnnamed); err != nil {
			return err
		}
		if tx.phase == txAborted && s.namespaceUnverified() {
			return usageError(tx.abortedErr()) // an option may lead elsewhere, and back would then be wrong
		}
		return s.returnBeforeStatement(ctx, backend.Call{Tx: tx.id})
	}
	return runStepWithoutValue(c, func(ctx context.Context) error {
		err := s.rememberOption(ctx, key)
		if err == nil {
			err = s.conn.SetOptions(ctx, map[string]any{key: value})
		}
		return s.checkTxAfterRefusal(ctx, err)
	}, func(inTime bool, err error) outcome {
		if !inTime { // it may lead later statements elsewhere
			s.abortTx(errors.New("SetOption: " + callerLeftText))
		}
		return outcome{err: err}
	})
}

// rememberOption reads the option, and where names are looked for, before the first
// change. Its failure is that of SetOption, before anything was changed: what could not
// be put back is not set. The map is replaced, since a copy of it may be in use.
func (s *SessionHandle) rememberOption(ctx context.Context, key string) error {
	s.mu.Lock()
	_, known := s.mu.sideEffects.options[key]
	s.mu.Unlock()
	if known {
		return nil
	}
	before, err := s.conn.Options(ctx)
	if err != nil {
		return err
	}
	if err := s.rememberNamespace(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := maps.Clone(s.mu.sideEffects.options)
	if kept == nil {
		kept = make(map[string]any)
	}
	kept[key] = before[key] // nil, to erase, when it was not set
	s.mu.sideEffects.options = kept
	return nil
}

// checkTxAfterRefusal finds out, where the server has refused what is no statement,
// whether an open transaction has outlived that. It returns err, or what has become of
// the session. Servers differ in whether the refusal of an option, or of a ping, aborts
// the transaction, and a COMMIT of one that is aborted may be confirmed. A page of HTTP may
// stand in place of a refusal.
func (s *SessionHandle) checkTxAfterRefusal(ctx context.Context, err error) error {
	tx := s.txState()
	if tx.phase != txOpen || backend.FaultIn(err) != backend.FaultStatement && !effect.IsPage(err) {
		return err
	}
	probe := s.runProbeInTx(ctx, tx.id)
	if probe == nil {
		return err
	}
	s.abortTx(err)
	if !backend.FaultIn(probe).KeepsConn() {
		return probe
	}
	return err
}

// Options are the options of the Flight session as the server tells them.
func (s *SessionHandle) Options(ctx context.Context) (map[string]any, error) {
	c, err := s.begin(ctx, "Options", QueryOptions{}, s.readMode())
	if err != nil {
		return nil, err
	}
	c.beforeSend = s.proveIfAlive
	return runStep(c, func(ctx context.Context) (map[string]any, error) {
		opts, err := s.conn.Options(ctx)
		return opts, s.checkTxAfterRefusal(ctx, err)
	}, valueOutcome)
}

// restoreOptions sets the options to what they were before, and compares them: a server
// may refuse to erase what it has refused to set. Only the comparison counts: with
// every option as it was, a refusal has done no harm.
func (s *SessionHandle) restoreOptions(ctx context.Context, before map[string]any) error {
	refused := withoutText(s.conn.SetOptions(ctx, before))
	if refused != nil && !backend.FaultIn(refused).KeepsConn() {
		return refused
	}
	now, err := s.conn.Options(ctx)
	if err != nil {
		return err
	}
	for key, value := range before {
		if !reflect.DeepEqual(now[key], value) {
			return errjoin.Join(fmt.Errorf("%s is not what it was", key), refused)
		}
	}
	return nil
}
