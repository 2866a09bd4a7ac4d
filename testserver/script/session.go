package script

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/testserver/engine"
)

// session is a session of an Engine.
type session struct {
	db       *Engine
	tx       *transaction // open, or nil
	temp     tables       // of the session, as of the last commit
	settings map[string]string
	at       namespace // that USE has set
}

func (s *session) Describe(_ context.Context, sql string) (engine.Description, error) {
	if s.db.answerTo(sql) != nil {
		return engine.Description{}, nil
	}
	st, err := parse(sql)
	if err != nil {
		return engine.Description{}, err
	}
	view := s.view()
	d := engine.Description{Update: !st.hasRows(), Params: s.paramSchema(st, view)}
	d.Rows, err = s.rowSchema(st, view)
	return d, err
}

// view is what the next statement sees.
func (s *session) view() *view {
	if s.tx != nil {
		return &s.tx.view
	}
	return &s.db.begin(s.temp).view
}

func (s *session) Query(ctx context.Context, sql string, params arrow.RecordBatch) (array.RecordReader, error) {
	if make := s.db.answerTo(sql); make != nil {
		return s.failing(make(ctx, sql, params))
	}
	st, err := parse(sql)
	if err != nil {
		return nil, err
	}
	rows, err := bindings(st, params)
	if err != nil {
		return nil, err
	}
	if !st.hasRows() {
		n, err := s.updateRows(ctx, st, rows)
		if err != nil {
			return nil, err
		}
		return newReader(ctx, arrow.NewSchema(nil, nil), n, nil), nil
	}
	if s.tx != nil && s.tx.aborted {
		return nil, errAborted
	}
	if st.returning != "" {
		return s.failing(s.insertReturning(ctx, st, rows))
	}
	return s.failing(s.selectRows(ctx, st, rows))
}

func (s *session) Update(ctx context.Context, sql string, params arrow.RecordBatch) (int64, error) {
	if s.db.answerTo(sql) == nil {
		st, err := parse(sql)
		if err != nil {
			return 0, err
		}
		if !st.hasRows() {
			rows, err := bindings(st, params)
			if err != nil {
				return 0, err
			}
			return s.updateRows(ctx, st, rows)
		}
	}
	rows, err := s.Query(ctx, sql, params)
	if err != nil {
		return 0, err
	}
	defer rows.Release()
	var n int64
	for rows.Next() {
		n += rows.RecordBatch().NumRows()
	}
	return n, rows.Err()
}

// failing lets a failure of reader abort the transaction.
func (s *session) failing(reader array.RecordReader, err error) (array.RecordReader, error) {
	if err != nil {
		return nil, s.abort(err)
	}
	return &abortingReader{RecordReader: reader, session: s}, nil
}

// abort makes the open transaction fail, unless err is of the harmless kind.
func (s *session) abort(err error) error {
	var harmless sqlError
	if s.tx != nil && !errors.As(err, &harmless) && !errors.Is(err, engine.ErrTxState) {
		s.tx.aborted = true
	}
	return err
}

// updateRows runs a statement without rows, once for each row of parameters.
func (s *session) updateRows(ctx context.Context, st *parsed, rows [][]any) (int64, error) {
	switch st.verb {
	case "BEGIN":
		return 0, s.Begin(ctx)
	case "COMMIT":
		return 0, s.Commit(ctx)
	case "ROLLBACK":
		return 0, s.Rollback(ctx)
	case "ALTER":
		if s.tx == nil {
			return 0, s.alterInSteps(ctx, st, firstOf(rows))
		}
	}
	if s.tx != nil && s.tx.aborted && st.verb != "ROLLBACK TO" {
		return 0, errAborted
	}
	var sum int64
	for _, row := range rows {
		err := ctx.Err()
		if st.verb == "UPDATE" && row != nil && err == nil {
			err = sleep(ctx, s.db.stepPause())
		}
		if err != nil {
			return 0, s.abort(err)
		}
		n, err := s.updateRow(ctx, st, row)
		if err != nil {
			return 0, s.abort(err)
		}
		sum += n
	}
	return sum, nil
}

func (s *session) updateRow(ctx context.Context, st *parsed, row []any) (n int64, err error) {
	switch st.verb {
	case "SET":
		value := fmt.Sprint(st.items[0].bound(row))
		if st.name == "schema" {
			return 0, s.use(value)
		}
		if st.own || !s.db.changeSetting(st.name, &value) {
			s.settings[st.name] = value
		}
		return 0, nil
	case "RESET":
		if st.name == "schema" {
			s.at = homeNamespace
		}
		if st.own || !s.db.changeSetting(st.name, nil) {
			delete(s.settings, st.name)
		}
		return 0, nil
	case "USE":
		return 0, s.use(st.name)
	case "CREATE SCHEMA":
		s.createSchema(st.name)
		return 0, nil
	case "SAVEPOINT":
		return 0, s.Savepoint(ctx, st.name)
	case "ROLLBACK TO":
		return 0, s.RollbackTo(ctx, st.name)
	case "RELEASE":
		return 0, s.Release(ctx, st.name)
	}
	if s.tx != nil {
		if in, _, err := s.target(st); err == nil {
			if err := s.tx.change(in); err != nil {
				return 0, err
			}
		}
	}
	err = s.inTx(func(v *view) error {
		n, err = s.change(ctx, v, st, row)
		return err
	})
	return n, err
}

// target is where the table is that a statement changes.
func (s *session) target(st *parsed) (namespace, string, error) {
	if st.temp || s.view().temp[st.name] != nil {
		return tempNamespace, st.name, nil
	}
	return s.resolve(st.name)
}

// inTx changes what the open transaction sees, or commits the change at once.
func (s *session) inTx(change func(*view) error) error {
	if s.tx != nil {
		return change(&s.tx.view)
	}
	tx := s.db.begin(s.temp)
	if err := change(&tx.view); err != nil {
		return err
	}
	if err := s.db.commit(tx); err != nil {
		return err
	}
	s.temp = tx.temp
	return nil
}

func (s *session) Begin(context.Context) error {
	if s.tx != nil {
		return errInTx
	}
	s.tx = s.db.begin(s.temp)
	return nil
}

func (s *session) Commit(context.Context) error {
	tx := s.tx
	s.tx = nil
	switch {
	case tx == nil:
		return errNoCommit
	case tx.aborted:
		return fmt.Errorf("%w: %w", engine.ErrTxAborted, errAborted)
	}
	if err := s.db.commit(tx); err != nil {
		return fmt.Errorf("transaction error: failed to commit: %w: %w", err, engine.ErrTxState)
	}
	s.temp = tx.temp
	return nil
}

func (s *session) Rollback(context.Context) error {
	if s.tx == nil {
		return errNoTx
	}
	s.tx = nil
	return nil
}

func (s *session) InTx() bool { return s.tx != nil }

func (s *session) Savepoint(_ context.Context, name string) error {
	switch {
	case s.tx == nil:
		return errNoTx
	case s.tx.aborted:
		return errAborted
	}
	s.tx.savepoints = append(s.tx.savepoints, savepoint{name: name, view: s.tx.clone()})
	return nil
}

// RollbackTo also mends a transaction that was aborted after the savepoint.
func (s *session) RollbackTo(_ context.Context, name string) error {
	i, err := s.savepoint(name)
	if err != nil {
		return err
	}
	s.tx.savepoints = s.tx.savepoints[:i+1]
	s.tx.view, s.tx.aborted = s.tx.savepoints[i].view.clone(), false
	return nil
}

func (s *session) Release(_ context.Context, name string) error {
	i, err := s.savepoint(name)
	if err == nil {
		s.tx.savepoints = s.tx.savepoints[:i]
	}
	return err
}

// savepoint finds the latest of a name.
func (s *session) savepoint(name string) (int, error) {
	if s.tx == nil {
		return 0, errNoTx
	}
	for i := len(s.tx.savepoints) - 1; i >= 0; i-- {
		if s.tx.savepoints[i].name == name {
			return i, nil
		}
	}
	return 0, catalogError("savepoint %s does not exist", name)
}

func (s *session) Close() error {
	s.tx = nil
	return nil
}
