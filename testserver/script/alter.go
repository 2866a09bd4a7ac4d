package script

import (
	"context"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
)

// addition reads an ALTER TABLE, which adds a column.
func (p *parser) addition(st *parsed) {
	p.Expect("TABLE")
	st.name = p.Ident()
	p.Expect("ADD")
	p.Accept("COLUMN")
	f := arrow.Field{Name: p.Ident(), Nullable: true}
	var ok bool
	if f.Type, ok = columnType(p.Ident()); !ok {
		p.Fail()
	}
	p.Expect("DEFAULT")
	st.columns, st.items = []arrow.Field{f}, []item{p.value()}
}

// alterInSteps runs an ALTER TABLE in a transaction of its own, which is left as it is when one of the
// steps fails or is cut.
func (s *session) alterInSteps(ctx context.Context, st *parsed, row []any) error {
	pause := s.db.stepPause()
	if err := s.Begin(ctx); err != nil {
		return err
	}
	own := s.tx
	step := func() error { // another statement of the session may end the transaction meanwhile
		err := sleep(ctx, pause)
		if err == nil && s.tx != own {
			err = errNoTx
		}
		return err
	}
	if err := step(); err != nil {
		return err
	}
	if _, err := s.change(ctx, &own.view, st, row); err != nil {
		own.aborted = true
		return err
	}
	if err := step(); err != nil {
		return err
	}
	return s.Commit(ctx)
}

// addColumn adds one to a table, with a value in each row.
func addColumn(v *view, t *table, st *parsed, row []any) error {
	f := st.columns[0]
	if t.columns.HasField(f.Name) {
		return catalogError("catalog error: column with name %s already exists", f.Name)
	}
	value, err := convert(st.items[0].bound(row), f.Type)
	if err != nil {
		return err
	}
	wider := t.with(make([][]any, len(t.rows)))
	wider.columns = arrow.NewSchema(append(slices.Clone(t.columns.Fields()), f), nil)
	for i, r := range t.rows {
		wider.rows[i] = append(slices.Clone(r), value)
	}
	v.put(wider)
	return nil
}
