package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/cmd/flightpool/internal/output"
	"github.com/flightpool/flightpool/flightpool"
)

// A tableRow is a row of Flight SQL's answer to a question for tables.
type tableRow struct {
	Catalog *string `arrow:"catalog_name"`
	Schema  *string `arrow:"db_schema_name"`
	Name    string  `arrow:"table_name"`
	Type    string  `arrow:"table_type"`
	Columns []byte  `arrow:"table_schema,optional"` // where it was asked for
}

// columns are the fields of the table's schema.
func (r tableRow) columns() ([]arrow.Field, error) {
	schema, err := flightpool.TableSchema(r.Columns)
	if err != nil {
		return nil, fmt.Errorf("the server's schema of %s: %w", r.Name, err)
	}
	return schema.Fields(), nil
}

// describe lists the tables that the session sees, or the columns of those of a name.
func (s *shell) describe(ctx context.Context, name string) error {
	ctx, stop := s.interruptible(ctx)
	defer stop()
	session, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	request := backend.MetadataRequest{Kind: backend.MetadataTables, IncludeColumns: name != ""}
	found, err := flightpool.CollectRows[tableRow](session.Metadata(ctx, request))
	if err != nil {
		return s.failed(ctx, "", err, false)
	}
	if name == "" {
		return s.listTables(found)
	}
	found = slices.DeleteFunc(found, func(r tableRow) bool { return !r.isNamed(name) && !r.isNamed(strings.ReplaceAll(name, `"`, "")) })
	if len(found) == 0 {
		return fmt.Errorf(`no table %s: \d lists them`, output.Printable(name))
	}
	for _, r := range found {
		s.tell("%s %s", output.Printable(strings.ToLower(r.Type)), output.Printable(r.fullName()))
		fields, err := r.columns()
		if err != nil {
			return err
		}
		for _, f := range fields {
			null := ""
			if !f.Nullable {
				null = " not null"
			}
			s.tell("  %-24s %s%s", output.Printable(f.Name), output.Printable(f.Type.String()), null)
		}
	}
	return nil
}

func (s *shell) listTables(found []tableRow) error {
	for _, r := range found {
		s.tell("  %-40s %s", output.Printable(r.fullName()), output.Printable(strings.ToLower(r.Type)))
	}
	s.tell("(%s)", count(int64(len(found)), "table"))
	return nil
}

// isNamed reports whether name is that of the table, alone or behind those of its schema and
// catalog. A name may have dots itself.
func (r tableRow) isNamed(name string) bool {
	full := r.Name
	for _, part := range []string{"", text(r.Schema), text(r.Catalog)} {
		if part != "" {
			full = part + "." + full
		}
		if strings.EqualFold(name, full) {
			return true
		}
	}
	return false
}

func (r tableRow) fullName() string {
	var parts []string
	for _, part := range []string{text(r.Catalog), text(r.Schema), r.Name} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ".")
}

func text(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

// catalogTimeout bounds one question for the names of tables and columns.
const catalogTimeout = 5 * time.Second

// A catalog knows names for completion. It asks the server behind the user, on
// another connection, so that the session is not kept busy.
type catalog struct {
	pool *flightpool.FlightSQLPool

	mu      sync.Mutex
	asking  bool
	asked   chan struct{} // closed once it does not ask any more
	stale   bool
	columns map[string][]string // of each table
	begun   splitter            // of the statement that the line goes on with
}

// refresh asks for the names, once at a time.
func (c *catalog) refresh(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stale = true
	if c.asking {
		return // who asks sees that
	}
	c.asking, c.asked = true, make(chan struct{})
	go func() {
		for c.isStale() {
			c.load(ctx)
		}
	}()
}

// isStale reports whether there is a reason to ask again.
func (c *catalog) isStale() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asking = c.stale
	if c.stale = false; !c.asking {
		close(c.asked)
	}
	return c.asking
}

// load asks once. Names are kept where the server does not answer.
func (c *catalog) load(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, catalogTimeout)
	defer cancel()
	found, err := flightpool.CollectRows[tableRow](c.pool.Tables(ctx, flightpool.TableFilter{IncludeColumns: true}))
	if err != nil {
		return
	}
	columns := make(map[string][]string, len(found))
	for _, r := range found {
		fields, _ := r.columns() // a table may be completed without its columns
		for _, f := range fields {
			columns[r.Name] = append(columns[r.Name], f.Name)
		}
		if len(fields) == 0 {
			columns[r.Name] = nil
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.columns = columns
}
