//go:build duckdb_arrow

package duckdb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"github.com/flightpool/flightpool/testserver/engine"

	capi "github.com/duckdb/duckdb-go-bindings"
)

// Config of an Engine. The zero value is an empty in-memory database that all
// sessions share.
type Config struct {
	// Path is the database file. Empty keeps everything in memory.
	Path string

	// PerSession gives each session a database of its own instead of a
	// connection to the shared one. It needs an empty Path.
	PerSession bool

	// Tables holds files named *.parquet and *.csv; each becomes a table of
	// the file's name. It is read when a database is made. Nil adds none.
	Tables fs.FS

	// Settings are DuckDB options, for example "memory_limit": "2GB". "threads" is 1
	// unless it is set here: each statement then runs in the thread that reads it. With
	// more, DuckDB 1.5 sometimes says "INTERRUPT Error: Interrupted!" in place of the
	// error with which a statement fails while its rows are read.
	Settings map[string]string
}

// Engine is a DuckDB database behind a testserver. It is safe for concurrent
// use; its sessions are not.
type Engine struct {
	cfg    Config
	shared *database // nil with PerSession

	mu       sync.Mutex
	catalogs []string // attached
}

var (
	_ engine.Engine   = (*Engine)(nil)
	_ engine.Attacher = (*Engine)(nil)
)

// New opens the database and loads Config.Tables into it. ctx bounds that and
// nothing later. The caller closes the Engine, or gives it to a Server, which
// then does.
func New(ctx context.Context, cfg Config) (*Engine, error) {
	if cfg.PerSession && cfg.Path != "" {
		return nil, errors.New("duckdb: Config.PerSession: a database per session is in memory, so Path must be empty")
	}
	e := &Engine{cfg: cfg}
	if cfg.PerSession {
		return e, nil
	}
	var err error
	e.shared, err = openDatabase(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Attach adds an empty catalog in memory, with Config.PerSession to the database
// of each session that is opened later.
func (e *Engine) Attach(ctx context.Context, catalog string) error {
	e.mu.Lock()
	e.catalogs = append(e.catalogs, catalog)
	e.mu.Unlock()
	if e.shared == nil {
		return nil
	}
	return e.shared.attach(ctx, catalog)
}

func (db *database) attach(ctx context.Context, catalog string) (err error) {
	s, err := db.connect()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	_, err = s.Update(ctx, "ATTACH IF NOT EXISTS ':memory:' AS "+ident(catalog), nil)
	return err
}

// Open connects one session.
func (e *Engine) Open(ctx context.Context) (engine.Session, error) {
	if e.shared != nil {
		return e.shared.connect()
	}
	db, err := openDatabase(ctx, e.cfg)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	catalogs := slices.Clone(e.catalogs)
	e.mu.Unlock()
	for _, catalog := range catalogs {
		if err := db.attach(ctx, catalog); err != nil {
			db.close()
			return nil, err
		}
	}
	s, err := db.connect()
	if err != nil {
		db.close()
		return nil, err
	}
	s.onClose = db.close
	return s, nil
}

// Close ends the database. Sessions must be closed before.
func (e *Engine) Close() error {
	if e.shared != nil {
		e.shared.close()
	}
	return nil
}

// database is one DuckDB instance.
type database struct {
	handle capi.Database
	once   sync.Once
}

func openDatabase(ctx context.Context, cfg Config) (*database, error) {
	var config capi.Config
	if capi.CreateConfig(&config) == capi.StateError {
		return nil, errors.New("duckdb: out of memory for the configuration")
	}
	defer capi.DestroyConfig(&config)
	settings := map[string]string{"threads": "1"}
	maps.Copy(settings, cfg.Settings)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if capi.SetConfig(config, name, settings[name]) == capi.StateError {
			return nil, fmt.Errorf("duckdb: Config.Settings: %q is not a valid setting", name)
		}
	}
	db := &database{}
	var msg string
	if capi.OpenExt(cfg.Path, &db.handle, config, &msg) == capi.StateError {
		return nil, fmt.Errorf("duckdb: open %q: %s", cfg.Path, msg)
	}
	if err := db.load(ctx, cfg.Tables); err != nil {
		db.close()
		return nil, err
	}
	return db, nil
}

func (db *database) connect() (*session, error) {
	s := &session{}
	if capi.Connect(db.handle, &s.conn) == capi.StateError {
		return nil, errors.New("duckdb: connect failed")
	}
	return s, nil
}

func (db *database) close() { db.once.Do(func() { capi.Close(&db.handle) }) }
