package script

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/testserver/engine"
)

var (
	errConflict = errors.New("conflict on update: another transaction has changed the same rows")
	errAborted  = fmt.Errorf("transaction error: current transaction is aborted (please ROLLBACK): %w", engine.ErrTxState)
	errNoTx     = fmt.Errorf("transaction error: no transaction is active: %w", engine.ErrTxState)
	errNoCommit = fmt.Errorf("transaction error: cannot commit - no transaction is active: %w", engine.ErrTxState)
	errInTx     = fmt.Errorf("transaction error: cannot start a transaction within a transaction: %w", engine.ErrTxState)
)

// tables are tables by their full name. Temporary ones are by their own name.
type tables map[string]*table

// table is a table at one moment. INVARIANT: it is never changed; what
// changes it makes another, and may append to the array under rows only
// where it is the latest committed one.
type table struct {
	in      namespace
	name    string
	columns *arrow.Schema
	key     int // column of the primary key, -1 if there is none
	rows    [][]any
}

// insert returns t with more rows.
func (t *table) insert(rows [][]any) (*table, error) {
	if t.key >= 0 {
		seen := make(map[any]struct{}, len(t.rows)+len(rows))
		for _, r := range t.rows {
			seen[r[t.key]] = struct{}{}
		}
		for _, r := range rows {
			if _, twice := seen[r[t.key]]; twice {
				return nil, fmt.Errorf("constraint error: duplicate key %v in table %s", r[t.key], t.name)
			}
			seen[r[t.key]] = struct{}{}
		}
	}
	return t.with(append(t.rows, rows...)), nil
}

func (t *table) with(rows [][]any) *table {
	next := *t
	next.rows = rows
	return &next
}

// change is what a transaction did to a table.
type change struct {
	rewritten bool // created, dropped, deleted from or updated
	inserted  [][]any
}

// view is what a transaction sees and has changed: what a savepoint
// goes back to.
type view struct {
	tables  tables
	temp    tables
	changes map[string]change
}

func (v view) clone() view {
	return view{tables: maps.Clone(v.tables), temp: maps.Clone(v.temp), changes: maps.Clone(v.changes)}
}

type savepoint struct {
	name string
	view view
}

// transaction is a transaction.
type transaction struct {
	base tables // what was committed as it began
	view
	savepoints []savepoint
	aborted    bool
	catalog    string // that it has changed, "" if none
}

// change notes that the transaction changes a table, and refuses a second
// catalog.
func (t *transaction) change(in namespace) error {
	switch {
	case in == tempNamespace || in.catalog == t.catalog:
	case t.catalog == "":
		t.catalog = in.catalog
	default:
		return fmt.Errorf("transaction error: attempting to write to database %q in a transaction that has already modified database %q: %w", in.catalog, t.catalog, engine.ErrTxState)
	}
	return nil
}

// put stores a table that was created or rewritten.
func (v *view) put(t *table) {
	if t.in == tempNamespace {
		v.temp[t.name] = t
		return
	}
	key := t.fullName()
	v.tables[key] = t
	v.changes[key] = change{rewritten: true}
}

func (v *view) drop(t *table) {
	if t.in == tempNamespace {
		delete(v.temp, t.name)
		return
	}
	key := t.fullName()
	delete(v.tables, key)
	v.changes[key] = change{rewritten: true}
}

func (v *view) insert(t *table, rows [][]any) error {
	grown, err := t.with(slices.Clip(t.rows)).insert(rows)
	if err != nil {
		return err
	}
	if t.in == tempNamespace {
		v.temp[t.name] = grown
		return nil
	}
	key := t.fullName()
	v.tables[key] = grown
	ch := v.changes[key]
	ch.inserted = append(slices.Clip(ch.inserted), rows...)
	v.changes[key] = ch
	return nil
}

// sqlError is an error that leaves a transaction usable.
type sqlError string

func (e sqlError) Error() string { return string(e) }

func catalogError(format string, args ...any) error { return sqlError(fmt.Sprintf(format, args...)) }

// columnType is a type by its SQL names.
func columnType(name string) (arrow.DataType, bool) {
	switch strings.ToUpper(name) {
	case "BIGINT", "INT", "INTEGER", "INT8":
		return arrow.PrimitiveTypes.Int64, true
	case "DOUBLE", "FLOAT", "REAL":
		return arrow.PrimitiveTypes.Float64, true
	case "VARCHAR", "TEXT", "STRING":
		return arrow.BinaryTypes.String, true
	case "BOOLEAN", "BOOL":
		return arrow.FixedWidthTypes.Boolean, true
	}
	return nil, false
}
