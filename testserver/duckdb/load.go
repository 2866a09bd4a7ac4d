//go:build duckdb_arrow

package duckdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// readers are the file types that become tables, and how DuckDB reads them.
var readers = map[string]string{".parquet": "read_parquet", ".csv": "read_csv"}

// load makes a table of each file in tables.
func (db *database) load(ctx context.Context, tables fs.FS) (err error) {
	if tables == nil {
		return nil
	}
	s, err := db.connect()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	// DuckDB reads files, not fs.FS: each goes through a temporary file.
	dir, err := os.MkdirTemp("", "duckdb-load-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	entries, err := fs.ReadDir(tables, ".")
	if err != nil {
		return fmt.Errorf("duckdb: Config.Tables: %w", err)
	}
	for _, entry := range entries {
		reader, ok := readers[path.Ext(entry.Name())]
		if !ok || entry.IsDir() {
			continue
		}
		file := filepath.Join(dir, entry.Name())
		if err := copyFile(file, tables, entry.Name()); err != nil {
			return fmt.Errorf("duckdb: Config.Tables: %w", err)
		}
		name := strings.TrimSuffix(entry.Name(), path.Ext(entry.Name()))
		sql := fmt.Sprintf("CREATE TABLE %s AS FROM %s(%s)", ident(name), reader, literal(file))
		if _, err := s.Update(ctx, sql, nil); err != nil {
			return fmt.Errorf("duckdb: load %s: %w", entry.Name(), err)
		}
	}
	return nil
}

func copyFile(to string, from fs.FS, name string) (err error) {
	src, err := from.Open(name)
	if err != nil {
		return err
	}
	defer src.Close() //nolint:errcheck // only read
	dst, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	_, err = io.Copy(dst, src)
	return err
}

// ident and literal quote for SQL text.
func ident(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

func literal(text string) string { return `'` + strings.ReplaceAll(text, `'`, `''`) + `'` }
