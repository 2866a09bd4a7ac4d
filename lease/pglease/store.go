package pglease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flightpool/flightpool/lease/fleet"
)

// Pool is where a store gets its connections from: a *pgxpool.Pool. One
// connection is taken for each request and goes back after it, without a
// transaction, a prepared statement or a setting that outlives it.
type Pool interface {
	Acquire(ctx context.Context) (*pgxpool.Conn, error)
}

// maxTries bounds how often a write begins anew because the row has changed
// since it was read. Each time another write was made.
const maxTries = 200

// Store is a fleet.Store in a table of PostgreSQL, one row per record. Its
// methods may be called concurrently.
type Store struct {
	pool    Pool
	table   table
	setting string // "Config" or "LimiterConfig", for errors
	skew    atomic.Int64

	// unknownWrites has the keys with a write of this store whose outcome is unknown.
	unknownWrites sync.Map

	// What was found to be right with the table: see check.
	readable, writable atomic.Bool
}

// NewStore is the store of a table that exists; see Setup. An empty name is
// DefaultTable. It sends nothing: the table is looked at with the first
// request. To read, SELECT on the table is enough.
func NewStore(pool Pool, tableName string) (*Store, error) {
	return newStore(pool, tableName, "Config")
}

func newStore(pool Pool, tableName, setting string) (*Store, error) {
	if isNil(pool) {
		return nil, errors.New("pglease: the pool is nil")
	}
	t, err := parseTable(tableName)
	if err != nil {
		return nil, fmt.Errorf("pglease: %s.Table: %w", setting, err)
	}
	return &Store{pool: pool, table: t, setting: setting}, nil
}

func isNil(pool Pool) bool {
	p, ok := pool.(*pgxpool.Pool)
	return pool == nil || ok && p == nil
}

// ClockSkew is the server's clock minus this process's, as of the last answer.
func (s *Store) ClockSkew() time.Duration { return time.Duration(s.skew.Load()) }

// Read is as fleet.Store says, in one request.
func (s *Store) Read(ctx context.Context, keys ...string) (fleet.Snapshot, error) {
	snapshot := fleet.Snapshot{Records: make(map[string]*fleet.Record, len(keys))}
	if len(keys) == 0 {
		return snapshot, nil
	}
	err := s.withCheckedConn(ctx, false, func(c *pgconn.PgConn) error {
		rows, now, err := s.fetch(ctx, c, keys)
		for key, r := range rows {
			snapshot.Records[key] = r.record
		}
		snapshot.Now = now
		return err
	})
	if err != nil {
		return fleet.Snapshot{}, err
	}
	return snapshot, nil
}

// Budgets lists the budgets of the table, in order.
func (s *Store) Budgets(ctx context.Context) (names []string, err error) {
	err = s.withCheckedConn(ctx, false, func(c *pgconn.PgConn) error {
		result, err := run(ctx, c, s.table.selectBudgets())
		if err != nil {
			return err
		}
		for _, r := range result.Rows {
			if string(r[1]) == "t" {
				return ErrStandby
			}
			names = append(names, strings.TrimPrefix(string(r[0]), fleet.BudgetPrefix))
		}
		return nil
	})
	slices.Sort(names)
	return names, err
}

// Write is as fleet.Store says. It reads the row, and replaces the record that
// it has read, if that is still there, by what the change makes of it; else it
// begins anew.
//
// INVARIANT: nothing is locked while the server waits for this process. The
// replacement is one statement and arrives in one message, so that a process
// that stands still at any moment holds nobody up.
func (s *Store) Write(ctx context.Context, change fleet.Change) (answer fleet.Answer, err error) {
	expires := expiry{set: !change.Expires.IsZero(), in: time.Until(change.Expires)}
	err = s.withCheckedConn(ctx, true, func(c *pgconn.PgConn) error {
		for range maxTries {
			var done bool
			if answer, done, err = s.tryWrite(ctx, c, change, expires); err != nil {
				return err
			} else if done {
				return nil
			}
		}
		return fmt.Errorf("pglease: a write was overtaken %d times: if nothing else writes so much, a trigger or rule of table %s stops it", maxTries, s.table)
	})
	if err != nil {
		return fleet.Answer{}, err
	}
	return answer, nil
}

// tryWrite is one turn of a write. It reports false when it was overtaken.
func (s *Store) tryWrite(ctx context.Context, c *pgconn.PgConn, change fleet.Change, expires expiry) (fleet.Answer, bool, error) {
	rows, now, err := s.fetch(ctx, c, []string{change.Key})
	if err != nil {
		return fleet.Answer{}, false, err
	}
	old := rows[change.Key]
	if !change.Holds(old.record) {
		done, err := s.confirmDurable(ctx, c, change.Key, old)
		return fleet.Answer{Record: old.record, Now: now}, done, err
	}
	fresh := change.Apply(old.record, now)
	done, err := s.replace(ctx, c, change.Key, old, fresh, expires)
	if err != nil {
		s.unknownWrites.Store(change.Key, nil)
		return fleet.Answer{}, false, err
	}
	if done {
		s.unknownWrites.Delete(change.Key)
		if expires.set { // as others have been left; what fails here is done after a later write
			_, _ = run(ctx, c, s.table.deleteExpired())
		}
	}
	return fleet.Answer{Done: true, Record: fresh, Now: now}, done, nil
}

// confirmDurable sees to it that a row which shows what became of an earlier write is
// as durable as an answer to that write would have been. A commit waits for the
// synchronous standbys, but a request to cancel, such as the end of a caller's
// context sends, ends the wait and leaves a row that everybody sees and no
// standby has. A later commit waits for all before it. It reports false when
// the row is gone.
func (s *Store) confirmDurable(ctx context.Context, c *pgconn.PgConn, key string, seen row) (bool, error) {
	if _, doubtful := s.unknownWrites.Load(key); !doubtful || seen.record == nil {
		return true, nil
	}
	result, err := run(ctx, c, s.table.touchRow(key))
	if err != nil {
		return false, err
	}
	if result.CommandTag.RowsAffected() == 0 {
		return false, nil
	}
	s.unknownWrites.Delete(key)
	return true, nil
}

// withCheckedConn runs f on a connection, after the table was looked at.
func (s *Store) withCheckedConn(ctx context.Context, write bool, f func(*pgconn.PgConn) error) error {
	return s.withConn(ctx, func(c *pgconn.PgConn) error {
		if !s.writable.Load() && (write || !s.readable.Load()) {
			if err := s.check(ctx, c, write); err != nil {
				return err
			}
		}
		return f(c)
	})
}

// withConn runs f on a connection.
func (s *Store) withConn(ctx context.Context, f func(*pgconn.PgConn) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return s.explain(fmt.Errorf("pglease: no connection: %w", err))
	}
	defer conn.Release()
	err = f(conn.Conn().PgConn())
	if errors.Is(err, ErrStandby) {
		// The pool's next connection may lead to the primary.
		_ = conn.Conn().Close(ctx) // it is of no use, however that ends
	}
	return s.explain(err)
}

// row is what a record was when it was read.
type row struct {
	record *fleet.Record // nil: there is none
	text   string
}

// fetch reads the rows of keys and the server's clock.
func (s *Store) fetch(ctx context.Context, c *pgconn.PgConn, keys []string) (map[string]row, time.Time, error) {
	text, err := s.table.selectRows(keys)
	if err != nil {
		return nil, time.Time{}, err
	}
	sent := time.Now()
	result, err := run(ctx, c, text)
	if err != nil {
		return nil, time.Time{}, err
	}
	took := time.Since(sent)
	found, now := make(map[string]row, len(keys)), time.Time{}
	for _, r := range result.Rows {
		key, record, millis, standby := string(r[0]), r[1], string(r[2]), string(r[3])
		if standby == "t" {
			return nil, time.Time{}, ErrStandby
		}
		n, err := strconv.ParseInt(millis, 10, 64)
		if err != nil {
			return nil, time.Time{}, fmt.Errorf("pglease: the server's clock says %q: %w", millis, err)
		}
		now = time.UnixMilli(n)
		if record == nil {
			continue
		}
		decoded, err := s.decode(key, record)
		if err != nil {
			return nil, time.Time{}, err
		}
		found[key] = row{decoded, string(record)}
	}
	s.skew.Store(int64(now.Sub(sent.Add(took / 2))))
	return found, now, nil
}

// decode refuses what this package never writes.
func (s *Store) decode(key string, text []byte) (*fleet.Record, error) {
	r := &fleet.Record{Numbers: map[string]int64{}, Texts: map[string]string{}, Owners: map[string]fleet.Owner{}}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, &fleet.ConfigError{
			Setting: s.setting + ".Table",
			Hint:    fmt.Sprintf("the row %q of table %s is not as this package writes it: mend it, or delete it while no process runs", key, s.table),
			Err:     err,
		}
	}
	return r, nil
}

// replace puts fresh in the place of what was read, and reports whether that
// was still there.
func (s *Store) replace(ctx context.Context, c *pgconn.PgConn, key string, old row, fresh *fleet.Record, e expiry) (bool, error) {
	record, err := json.Marshal(fresh)
	if err != nil {
		return false, fmt.Errorf("pglease: record %q: %w", key, err)
	}
	statement := s.table.insertRow(key, string(record), e)
	if old.record != nil {
		statement = s.table.updateRow(key, old.text, string(record), e)
	}
	result, err := run(ctx, c, statement)
	if err != nil {
		return false, err
	}
	return result.CommandTag.RowsAffected() == 1, nil
}
