package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/internal/sqlscan"
)

// dirt is what the statements of a session leave behind that the next borrower
// could see.
type dirt struct {
	effects []sqlscan.Effect
	options map[string]any // session options as they were before SetOption
	home    string         // the catalogue and schema before the first USE, as SQL
	used    bool           // something other than a plain read was sent
}

func (d *dirt) add(script sqlscan.Script) {
	d.used = d.used || !script.ReadOnly()
	d.effects = append(d.effects, script.Effects()...)
}

// clean takes back all that the session left. An error means that the
// connection must be discarded.
func (s *SessionHandle) clean() error {
	s.mu.Lock()
	tx, d, doubt, proven := s.mu.tx, s.mu.dirt, s.mu.doubt, s.mu.proof.stmt != nil
	prepared := s.mu.prepared
	s.mu.prepared = nil
	s.mu.Unlock()
	mode := s.policy.OnReturn.mode
	touched := d.used || len(d.options) > 0 || !s.stateless
	switch {
	case mode == resetDiscard && touched:
		_ = s.endOpen(tx, nil)
		return errors.New("discarded after use, as configured")
	case !tx.open() && len(prepared) == 0 && !doubt && !proven && !s.mustReset(d, touched):
		return nil // the way of nearly every call: nothing was left, nothing is sent
	}
	start := time.Now()
	err := s.endOpen(tx, prepared)
	ctx, stop := s.policy.bounded()
	defer stop()
	if err == nil && s.mustReset(d, touched) {
		err = s.reset(ctx, d)
	}
	if err == nil && doubt {
		err = s.runProbe(ctx)
	}
	if err != nil {
		err = fmt.Errorf("session could not be made clean: %w", err)
	}
	if f := s.policy.Observe.Reset; f != nil {
		f(time.Since(start), err)
	}
	return err
}

func (s *SessionHandle) mustReset(d dirt, touched bool) bool {
	switch s.policy.OnReturn.mode {
	case resetAuto:
		return len(d.effects) > 0 || len(d.options) > 0
	case resetSQL:
		return touched
	default:
		return false
	}
}

func (s *SessionHandle) reset(ctx context.Context, d dirt) error {
	if s.policy.OnReturn.mode == resetSQL {
		for _, sql := range s.policy.OnReturn.statements {
			if _, err := s.conn.Update(ctx, sql, Call{}); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		return nil
	}
	if len(d.options) > 0 {
		if err := s.conn.SetOptions(ctx, d.options); err != nil {
			return fmt.Errorf("put session options back: %w", err)
		}
	}
	temps := false
	for i := len(d.effects) - 1; i >= 0; i-- {
		sql, err := undo(d.effects[i], d.home)
		if err != nil {
			return err
		}
		if _, err := s.conn.Update(ctx, sql, Call{}); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
		temps = temps || d.effects[i].Kind == sqlscan.EffectTempTable || d.effects[i].Kind == sqlscan.EffectTempView
	}
	if temps {
		return s.verifyNoTemps(ctx)
	}
	return nil
}

// undo is the statement that takes an effect back. Temporary objects are named
// in the catalogue that holds nothing else, because a bare name could be a
// permanent table's once the temporary one has gone with a rollback.
func undo(e sqlscan.Effect, home string) (string, error) {
	switch e.Kind {
	case sqlscan.EffectSetting:
		return "RESET " + e.Name, nil
	case sqlscan.EffectTempTable:
		return "DROP TABLE IF EXISTS temp.main." + lastPart(e.Name), nil
	case sqlscan.EffectTempView:
		return "DROP VIEW IF EXISTS temp.main." + lastPart(e.Name), nil
	case sqlscan.EffectPrepared:
		return "DEALLOCATE " + e.Name, nil
	case sqlscan.EffectUse:
		if home != "" {
			return "USE " + home, nil
		}
	case sqlscan.EffectUnknown:
	}
	return "", errors.New("a statement left something that cannot be taken back")
}

// lastPart is the object's own name in a qualified one, quotes kept.
func lastPart(name string) string {
	inQuotes := false
	for i := len(name) - 1; i >= 0; i-- {
		switch {
		case name[i] == '"':
			inQuotes = !inQuotes
		case name[i] == '.' && !inQuotes:
			return name[i+1:]
		}
	}
	return name
}

// verifyNoTemps looks whether the drops have met what they were meant for.
// Servers without these catalogue functions fail here, and so cost the
// connection rather than show one borrower's table to the next.
func (s *SessionHandle) verifyNoTemps(ctx context.Context) error {
	stream, err := s.conn.Query(ctx, "SELECT (SELECT count(*) FROM duckdb_tables() WHERE temporary AND NOT internal)"+
		" + (SELECT count(*) FROM duckdb_views() WHERE temporary AND NOT internal)", Call{})
	if err != nil {
		return fmt.Errorf("look for temporary objects: %w", err)
	}
	defer stream.Close()
	batch, err := stream.Next()
	if err != nil {
		return fmt.Errorf("look for temporary objects: %w", err)
	}
	if left := firstValue(batch.Column(0)); left != "0" {
		return fmt.Errorf("%s temporary objects are left", left)
	}
	return drain(stream)
}

func firstValue(col interface {
	Len() int
	ValueStr(int) string
}) string {
	if col.Len() == 0 {
		return ""
	}
	return col.ValueStr(0)
}

// rememberHome finds out the current catalogue and schema before the first USE,
// so that it can be taken back. Where that fails the connection is discarded
// in the end, as nothing is then known to go back to.
func (s *SessionHandle) rememberHome(ctx context.Context, script sqlscan.Script) {
	uses := false
	for _, e := range script.Effects() {
		uses = uses || e.Kind == sqlscan.EffectUse
	}
	s.mu.Lock()
	known := s.mu.dirt.home != ""
	tx := s.mu.tx.id
	s.mu.Unlock()
	if !uses || known || s.policy.OnReturn.mode != resetAuto {
		return
	}
	stream, err := s.conn.Query(ctx, "SELECT current_database(), current_schema()", Call{Tx: tx})
	if err != nil {
		return
	}
	defer stream.Close()
	batch, err := stream.Next()
	if err != nil || batch.NumRows() != 1 || batch.NumCols() != 2 {
		return
	}
	catalog, ok1 := batch.Column(0).(array.StringLike)
	schema, ok2 := batch.Column(1).(array.StringLike)
	if !ok1 || !ok2 {
		return
	}
	home := quoteName(catalog.Value(0)) + "." + quoteName(schema.Value(0))
	if drain(stream) == nil {
		s.mu.Lock()
		s.mu.dirt.home = home
		s.mu.Unlock()
	}
}

func quoteName(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
