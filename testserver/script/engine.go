package script

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"

	"github.com/flightpool/flightpool/testserver/engine"
)

// Engine is a small engine.Engine in Go alone. It has real transactions, temporary
// tables and settings, so that whatever a client loses, leaks or runs twice
// can be seen, and answers of its user's own for everything else.
//
// Its SQL, one statement at a time; d is a duration such as '250ms':
//
//	SELECT 1, 'two', ? AS three              literals and parameters (? or $1)
//	SELECT sleep('d')                        one row after d
//	SELECT error('text')                     fails as it runs, and aborts the transaction
//	SELECT * FROM generate(rows[, batch])    BIGINT i from 0, in batches (1024 rows)
//	SELECT * FROM endless('d')               a row in a batch every d, for ever
//	SELECT * | count(*) FROM t [WHERE c = v]
//	SELECT current_setting('name') | SHOW name | SELECT current_database(), current_schema()
//	CREATE [TEMP] TABLE [IF NOT EXISTS] t (c BIGINT PRIMARY KEY, ...) | AS SELECT ...
//	INSERT INTO t [(c, ...)] VALUES (...) [RETURNING c]
//	UPDATE t SET c = v [WHERE c = v]         DELETE FROM t [WHERE c = v]
//	ALTER TABLE t ADD COLUMN c BIGINT DEFAULT v    DROP TABLE [IF EXISTS] t
//	CREATE SCHEMA s    USE [c.]s    SET [SESSION] name = v    RESET [SESSION] name
//	BEGIN    COMMIT    ROLLBACK [TO s]    SAVEPOINT s    RELEASE s
//
// A table can be named with its schema, its catalog or both; temp.main holds the
// temporary ones. Column types are BIGINT, DOUBLE, VARCHAR and BOOLEAN. What fails in parsing
// or for want of a table leaves a transaction usable; what fails in running
// aborts it. Committed rows of other sessions are seen by the transactions
// that begin after; two that change the same rows conflict, inserts do not. One
// transaction changes tables of one catalog only.
type Engine struct {
	mu        sync.Mutex // guards everything below
	committed tables
	schemas   map[namespace]struct{}
	answers   []answer
	settings  map[string]serverSetting
	pause     time.Duration // see PauseBetweenSteps
}

// serverSetting is a setting of the whole server.
type serverSetting struct{ value, byDefault string }

// Answer makes the result of a statement. It must honour ctx. The reader is
// released by its caller.
type Answer func(ctx context.Context, sql string, params arrow.RecordBatch) (array.RecordReader, error)

type answer struct {
	prefix string
	make   Answer
}

// New returns an empty database with the catalog "memory" and in it the
// schema "main".
func New() *Engine {
	return &Engine{committed: tables{}, schemas: map[namespace]struct{}{homeNamespace: {}}}
}

// ServerSetting makes a setting one of the whole server, as an operator of it has set it: SET and
// RESET, which gives it the server's default, are heard in all sessions that have no value of
// their own by SET SESSION. Other settings are of each session alone.
func (s *Engine) ServerSetting(name, value, byDefault string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.settings == nil {
		s.settings = map[string]serverSetting{}
	}
	s.settings[name] = serverSetting{value, byDefault}
}

// PauseBetweenSteps has an ALTER TABLE take so long between the statements as which it is run outside
// of transactions: the begin of one, the change, the commit. As on servers that run it so, one that fails
// or is cut leaves the transaction open. An UPDATE takes so long before each row of its parameters.
func (s *Engine) PauseBetweenSteps(pause time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pause = pause
}

func (s *Engine) stepPause() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pause
}

// changeSetting gives a setting of the whole server another value, nil its default. It reports
// whether there is such a setting.
func (s *Engine) changeSetting(name string, value *string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	setting, known := s.settings[name]
	if !known {
		return false
	}
	if setting.value = setting.byDefault; value != nil {
		setting.value = *value
	}
	s.settings[name] = setting
	return true
}

// On answers every statement that begins with prefix, instead of the built-in
// SQL; the latest that fits wins. It may be called at any time.
func (s *Engine) On(prefix string, make Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers = append(s.answers, answer{prefix: prefix, make: make})
}

// Rows is an Answer with these batches, at least one.
func Rows(batches ...arrow.RecordBatch) Answer {
	return func(context.Context, string, arrow.RecordBatch) (array.RecordReader, error) {
		return array.NewRecordReader(batches[0].Schema(), batches)
	}
}

func (s *Engine) answerTo(sql string) Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.answers) - 1; i >= 0; i-- {
		if strings.HasPrefix(sql, s.answers[i].prefix) {
			return s.answers[i].make
		}
	}
	return nil
}

// Open is engine.Engine's.
func (s *Engine) Open(context.Context) (engine.Session, error) {
	return &session{db: s, temp: tables{}, settings: map[string]string{}, at: homeNamespace}, nil
}

// SQLInfo is engine.Engine's.
func (s *Engine) SQLInfo() map[flightsql.SqlInfo]any { return nil }

// Close is engine.Engine's.
func (s *Engine) Close() error { return nil }

// begin takes a snapshot of what is committed.
func (s *Engine) begin(temp tables) *transaction {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &transaction{
		base: s.committed, // commit replaces it
		view: view{tables: maps.Clone(s.committed), temp: maps.Clone(temp), changes: map[string]change{}},
	}
}

// commit stores what tx changed, all of it or nothing.
func (s *Engine) commit(tx *transaction) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := maps.Clone(s.committed)
	for name, ch := range tx.changes {
		now := s.committed[name]
		switch {
		case !ch.rewritten && now != nil:
			grown, err := now.insert(ch.inserted)
			if err != nil {
				return err
			}
			next[name] = grown
		case now != tx.base[name]:
			return errConflict
		case tx.tables[name] == nil:
			delete(next, name)
		default:
			next[name] = tx.tables[name]
		}
	}
	s.committed = next
	return nil
}
