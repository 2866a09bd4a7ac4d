package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/apache/arrow-adbc/go/adbc"
	driver "github.com/apache/arrow-adbc/go/adbc/driver/flightsql"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// adbcClient is ADBC's Flight SQL driver.
type adbcClient struct {
	db   adbc.Database
	conn adbc.Connection
}

func newADBCClient(ctx context.Context, p *product, addr string) (client, error) {
	options := map[string]string{adbc.OptionKeyURI: "grpc+tcp://" + addr}
	if p.user != "" {
		options[adbc.OptionKeyUsername], options[adbc.OptionKeyPassword] = p.user, p.password
	}
	if p.authorization != "" {
		options[driver.OptionAuthorizationHeader] = p.authorization
	}
	db, err := driver.NewDriver(memory.DefaultAllocator).NewDatabase(options)
	if err != nil {
		return nil, err
	}
	if l, ok := db.(adbc.DatabaseLogging); ok {
		l.SetLogger(slog.New(slog.DiscardHandler)) // it logs the errors that it returns
	}
	conn, err := db.Open(ctx)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return adbcClient{db: db, conn: conn}, nil
}

// statement makes a statement of sql, has use work with it, and closes it.
func (c adbcClient) statement(sql string, use func(adbc.Statement) error) (err error) {
	stmt, err := c.conn.NewStatement()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stmt.Close()) }()
	if sql != "" {
		if err := stmt.SetSqlQuery(sql); err != nil {
			return err
		}
	}
	return use(stmt)
}

func bind(ctx context.Context, stmt adbc.Statement, params arrow.RecordBatch) error {
	if params == nil {
		return nil
	}
	if err := stmt.Prepare(ctx); err != nil {
		return err
	}
	return stmt.Bind(ctx, params)
}

func execute(ctx context.Context, stmt adbc.Statement) (rows, error) {
	r, _, err := stmt.ExecuteQuery(ctx)
	if err != nil {
		return rows{}, err
	}
	defer r.Release()
	return readRows(r)
}

func (c adbcClient) query(ctx context.Context, sql string, params arrow.RecordBatch) (got rows, err error) {
	err = c.statement(sql, func(stmt adbc.Statement) error {
		if err := bind(ctx, stmt, params); err != nil {
			return err
		}
		got, err = execute(ctx, stmt)
		return err
	})
	return got, err
}

func (c adbcClient) update(ctx context.Context, sql string, params arrow.RecordBatch) error {
	return c.statement(sql, func(stmt adbc.Statement) error {
		if err := bind(ctx, stmt, params); err != nil {
			return err
		}
		_, err := stmt.ExecuteUpdate(ctx)
		return err
	})
}

func (c adbcClient) prepared(ctx context.Context, sql string) (got rows, err error) {
	err = c.statement(sql, func(stmt adbc.Statement) error {
		if err := stmt.Prepare(ctx); err != nil {
			return err
		}
		for range 2 {
			if got, err = execute(ctx, stmt); err != nil {
				return err
			}
		}
		return nil
	})
	return got, err
}

func (c adbcClient) transaction(ctx context.Context, commit bool, changes ...string) (err error) {
	options, ok := c.conn.(adbc.PostInitOptions)
	if !ok {
		return errNoCall
	}
	if err := options.SetOption(adbc.OptionKeyAutoCommit, adbc.OptionValueDisabled); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, options.SetOption(adbc.OptionKeyAutoCommit, adbc.OptionValueEnabled)) }()
	for _, sql := range changes {
		if err := c.update(ctx, sql, nil); err != nil {
			return errors.Join(err, c.conn.Rollback(ctx))
		}
	}
	if commit {
		return c.conn.Commit(ctx)
	}
	return c.conn.Rollback(ctx)
}

func (c adbcClient) ingest(ctx context.Context, table string, batch arrow.RecordBatch) error {
	return c.statement("", func(stmt adbc.Statement) error {
		err := errors.Join(stmt.SetOption(adbc.OptionKeyIngestTargetTable, table),
			stmt.SetOption(adbc.OptionKeyIngestMode, adbc.OptionValueIngestModeAppend), stmt.Bind(ctx, batch))
		if err != nil {
			return err
		}
		_, err = stmt.ExecuteUpdate(ctx)
		return err
	})
}

// catalogue runs the calls that ADBC has under a name of its own; the others
// are only parts of its GetObjects.
func (c adbcClient) catalogue(ctx context.Context, call catalogueCall, _ string) (int64, error) {
	if call != tableTypes {
		return 0, fmt.Errorf("%s: %w", call, errNoCall)
	}
	r, err := c.conn.GetTableTypes(ctx)
	if err != nil {
		return 0, err
	}
	defer r.Release()
	got, err := readRows(r)
	return got.count, err
}

func (c adbcClient) close(context.Context) error { return errors.Join(c.conn.Close(), c.db.Close()) }
