//go:build duckdb_arrow

package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/apache/arrow-adbc/go/adbc"
	flightdriver "github.com/apache/arrow-adbc/go/adbc/driver/flightsql"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/session"
)

// client is one session with a server, as a program sees it. After commit, or
// rollback, there is no transaction, whatever they answer.
type client interface {
	begin(ctx context.Context) error
	commit(ctx context.Context) error
	rollback(ctx context.Context) error
	query(ctx context.Context, s step, params arrow.RecordBatch) (*rows, error)
	update(ctx context.Context, s step, params arrow.RecordBatch) (int64, error)
	prepare(ctx context.Context, sql string) (prepared, error)
	ingest(ctx context.Context, s step, m *ingestMode, rows array.RecordReader) (int64, error)
	close(ctx context.Context) error
}

type prepared interface {
	query(ctx context.Context, params arrow.RecordBatch) (*rows, error)
	update(ctx context.Context, params arrow.RecordBatch) (int64, error)
	close(ctx context.Context) error
}

// rows is a result, each row rendered so that different values differ.
type rows struct {
	schema string
	rows   []string
}

func (r *rows) add(batch arrow.RecordBatch) {
	var b strings.Builder
	for i := range int(batch.NumRows()) {
		b.Reset()
		for j, col := range batch.Columns() {
			if j > 0 {
				b.WriteString(" | ")
			}
			if col.IsNull(i) {
				b.WriteString("NULL")
			} else {
				fmt.Fprintf(&b, "%q", col.ValueStr(i))
			}
		}
		r.rows = append(r.rows, b.String())
	}
}

func describe(s *arrow.Schema) string {
	fields := make([]string, s.NumFields())
	for i, f := range s.Fields() {
		fields[i] = fmt.Sprintf("%s %s nullable=%t", f.Name, f.Type, f.Nullable)
	}
	return strings.Join(fields, ", ")
}

// readAll reads a result to its end and releases it.
func readAll(r array.RecordReader) (*rows, error) {
	defer r.Release()
	all := &rows{schema: describe(r.Schema())}
	for r.Next() {
		all.add(r.RecordBatch())
	}
	return all, r.Err()
}

// pooled is a session of our pool.
type pooled struct {
	pool *flightpool.FlightSQLPool
	*session.SessionHandle
}

func (c *pooled) begin(ctx context.Context) error  { return c.BeginTransaction(ctx) }
func (c *pooled) commit(ctx context.Context) error { return errors.Join(c.Commit(ctx), c.leave(ctx)) }

func (c *pooled) rollback(ctx context.Context) error {
	return c.Rollback(ctx)
}

// leave ends a transaction that a refused commit has left open.
func (c *pooled) leave(ctx context.Context) error {
	_ = c.Rollback(ctx) // fails where the commit has ended it
	return nil
}

func (c *pooled) query(ctx context.Context, s step, params arrow.RecordBatch) (*rows, error) {
	var r *session.QueryResult
	var err error
	switch {
	case s.is(stateless) && params != nil:
		r, err = c.pool.QueryWithParams(ctx, s.sql, params)
	case s.is(stateless) && s.is(execute):
		r, err = c.pool.Execute(ctx, s.sql)
	case s.is(stateless):
		r, err = c.pool.Query(ctx, s.sql)
	case params != nil:
		r, err = c.QueryWithParams(ctx, s.sql, params)
	case s.is(execute):
		r, err = c.Execute(ctx, s.sql)
	default:
		r, err = c.Query(ctx, s.sql)
	}
	if err != nil {
		return nil, err
	}
	return readAll(r)
}

// queryArgs is a query whose parameters are Go values. Those of types that have none are left out.
func (c *pooled) queryArgs(ctx context.Context, s step, params arrow.RecordBatch) (*rows, error) {
	var args []any
	for _, col := range params.Columns() {
		args = append(args, goValue(col))
	}
	r, err := c.pool.Query(ctx, s.sql, args...)
	if err != nil {
		return nil, err
	}
	return readAll(r)
}

// goValue is the first value of a column as a program has it, NULL for a type that Go has not.
func goValue(col arrow.Array) any {
	if col.Len() == 0 || col.IsNull(0) {
		return nil
	}
	switch c := col.(type) {
	case *array.Date32:
		return c.Value(0).ToTime()
	case *array.Timestamp:
		return c.Value(0).ToTime(c.DataType().(*arrow.TimestampType).Unit) //nolint:forcetypeassert // it is a timestamp's
	case *array.Binary:
		return bytes.Clone(c.Value(0))
	case *array.Boolean:
		return c.Value(0)
	case *array.String, *array.LargeString, *array.Int8, *array.Int16, *array.Int32, *array.Int64, *array.Uint8, *array.Uint16, *array.Uint32, *array.Uint64, *array.Float64:
		return c.GetOneForMarshal(0)
	default:
		return nil
	}
}

func (c *pooled) update(ctx context.Context, s step, params arrow.RecordBatch) (int64, error) {
	var u session.UpdateResult
	var err error
	switch {
	case s.is(execute) && params == nil:
		return c.execute(ctx, s)
	case s.is(stateless) && params != nil:
		u, err = c.pool.UpdateWithRecordBatch(ctx, s.sql, params)
	case s.is(stateless):
		u, err = c.pool.Update(ctx, s.sql)
	case params != nil:
		u, err = c.UpdateWithRecordBatch(ctx, s.sql, params)
	default:
		u, err = c.Update(ctx, s.sql)
	}
	return u.RowsAffected, err
}

func (c *pooled) execute(ctx context.Context, s step) (int64, error) {
	run := c.Execute
	if s.is(stateless) {
		run = c.pool.Execute
	}
	r, err := run(ctx, s.sql)
	if err != nil {
		return 0, err
	}
	n, known := r.RowsAffected()
	if _, err = readAll(r); err == nil && !known {
		err = errors.New("Execute of an update tells no affected rows")
	}
	return n, err
}

func (c *pooled) prepare(ctx context.Context, sql string) (prepared, error) {
	q, err := c.PrepareQuery(ctx, sql)
	if err != nil {
		return nil, err
	}
	return &pooledPrepared{q}, nil
}

// close gives the session back. An error says that its connection was given up,
// which is for the pool to judge.
func (c *pooled) close(context.Context) error {
	_ = c.Close()
	return nil
}

type pooledPrepared struct{ q *session.PreparedQuery }

func (p *pooledPrepared) query(ctx context.Context, params arrow.RecordBatch) (*rows, error) {
	r, err := p.q.QueryWithOptions(ctx, flightpool.QueryOptions{Params: params})
	if err != nil {
		return nil, err
	}
	return readAll(r)
}

func (p *pooledPrepared) update(ctx context.Context, params arrow.RecordBatch) (int64, error) {
	u, err := p.q.UpdateWithOptions(ctx, flightpool.QueryOptions{Params: params})
	return u.RowsAffected, err
}

func (p *pooledPrepared) close(ctx context.Context) error { return p.q.Close(ctx) }

// bare is arrow-go's client.
type bare struct {
	c  *flightsql.Client
	tx *flightsql.Txn
}

func openBare(addr string) (*bare, error) {
	c, err := flightsql.NewClient(addr, nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
	return &bare{c: c}, err
}

func (b *bare) begin(ctx context.Context) (err error) {
	b.tx, err = b.c.BeginTransaction(ctx)
	return err
}

func (b *bare) commit(ctx context.Context) error {
	tx := b.tx
	b.tx = nil
	err := tx.Commit(ctx)
	if err != nil {
		_ = tx.Rollback(ctx)
	}
	return err
}

func (b *bare) rollback(ctx context.Context) error {
	tx := b.tx
	b.tx = nil
	return tx.Rollback(ctx)
}

// fetch reads all endpoints of a result.
func (b *bare) fetch(ctx context.Context, info *flight.FlightInfo, err error) (*rows, error) {
	if err != nil {
		return nil, err
	}
	all := &rows{}
	for _, e := range info.GetEndpoint() {
		r, err := b.c.DoGet(ctx, e.GetTicket())
		if err != nil {
			return nil, err
		}
		part, err := readAll(r)
		if err != nil {
			return nil, err
		}
		all.schema = part.schema
		all.rows = append(all.rows, part.rows...)
	}
	return all, nil
}

func (b *bare) query(ctx context.Context, s step, params arrow.RecordBatch) (*rows, error) {
	switch {
	case params != nil:
		p, err := b.prepare(ctx, s.sql)
		if err != nil {
			return nil, err
		}
		r, err := p.query(ctx, params)
		return r, errors.Join(err, p.close(ctx))
	case b.tx != nil:
		info, err := b.tx.Execute(ctx, s.sql)
		return b.fetch(ctx, info, err)
	default:
		info, err := b.c.Execute(ctx, s.sql)
		return b.fetch(ctx, info, err)
	}
}

func (b *bare) update(ctx context.Context, s step, params arrow.RecordBatch) (int64, error) {
	switch {
	case params != nil:
		p, err := b.prepare(ctx, s.sql)
		if err != nil {
			return 0, err
		}
		n, err := p.update(ctx, params)
		return n, errors.Join(err, p.close(ctx))
	case b.tx != nil:
		return b.tx.ExecuteUpdate(ctx, s.sql)
	default:
		return b.c.ExecuteUpdate(ctx, s.sql)
	}
}

func (b *bare) prepare(ctx context.Context, sql string) (prepared, error) {
	prepare := b.c.Prepare
	if b.tx != nil {
		prepare = b.tx.Prepare
	}
	p, err := prepare(ctx, sql)
	if err != nil {
		return nil, err
	}
	return &barePrepared{b, p}, nil
}

func (b *bare) close(context.Context) error { return b.c.Close() }

type barePrepared struct {
	b *bare
	p *flightsql.PreparedStatement
}

func (p *barePrepared) query(ctx context.Context, params arrow.RecordBatch) (*rows, error) {
	if params != nil {
		p.p.SetParameters(params)
	}
	info, err := p.p.Execute(ctx)
	return p.b.fetch(ctx, info, err)
}

func (p *barePrepared) update(ctx context.Context, params arrow.RecordBatch) (int64, error) {
	if params != nil {
		p.p.SetParameters(params)
	}
	return p.p.ExecuteUpdate(ctx)
}

func (p *barePrepared) close(ctx context.Context) error { return p.p.Close(ctx) }

// driver is a connection of ADBC's Flight SQL driver.
type driver struct{ conn adbc.Connection }

func openADBC(addr string) (adbc.Database, error) {
	db, err := flightdriver.NewDriver(memory.DefaultAllocator).NewDatabase(map[string]string{adbc.OptionKeyURI: "grpc://" + addr})
	if err == nil {
		db.(adbc.DatabaseLogging).SetLogger(slog.New(slog.DiscardHandler))
	}
	return db, err
}

func (d *driver) autocommit(value string) error {
	return d.conn.(adbc.PostInitOptions).SetOption(adbc.OptionKeyAutoCommit, value)
}

func (d *driver) begin(context.Context) error { return d.autocommit(adbc.OptionValueDisabled) }

func (d *driver) commit(ctx context.Context) error {
	err := d.conn.Commit(ctx)
	if err != nil {
		_ = d.conn.Rollback(ctx)
	}
	return errors.Join(err, d.autocommit(adbc.OptionValueEnabled))
}

func (d *driver) rollback(ctx context.Context) error {
	return errors.Join(d.conn.Rollback(ctx), d.autocommit(adbc.OptionValueEnabled))
}

func (d *driver) query(ctx context.Context, s step, params arrow.RecordBatch) (*rows, error) {
	p, err := d.statement(ctx, s.sql, params)
	if err != nil {
		return nil, err
	}
	r, err := p.query(ctx, params)
	return r, errors.Join(err, p.close(ctx))
}

func (d *driver) update(ctx context.Context, s step, params arrow.RecordBatch) (int64, error) {
	p, err := d.statement(ctx, s.sql, params)
	if err != nil {
		return 0, err
	}
	n, err := p.update(ctx, params)
	return n, errors.Join(err, p.close(ctx))
}

// statement is one that is prepared only if it has parameters.
func (d *driver) statement(ctx context.Context, sql string, params arrow.RecordBatch) (prepared, error) {
	if params != nil {
		return d.prepare(ctx, sql)
	}
	st, err := d.conn.NewStatement()
	if err != nil {
		return nil, err
	}
	if err := st.SetSqlQuery(sql); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return &driverPrepared{st}, nil
}

func (d *driver) prepare(ctx context.Context, sql string) (prepared, error) {
	st, err := d.conn.NewStatement()
	if err != nil {
		return nil, err
	}
	if err = st.SetSqlQuery(sql); err == nil {
		err = st.Prepare(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return &driverPrepared{st}, nil
}

func (d *driver) close(context.Context) error { return d.conn.Close() }

type driverPrepared struct{ st adbc.Statement }

func (p *driverPrepared) bind(ctx context.Context, params arrow.RecordBatch) error {
	if params == nil {
		return nil
	}
	params.Retain() // Bind takes a reference over
	return p.st.Bind(ctx, params)
}

func (p *driverPrepared) query(ctx context.Context, params arrow.RecordBatch) (*rows, error) {
	if err := p.bind(ctx, params); err != nil {
		return nil, err
	}
	r, _, err := p.st.ExecuteQuery(ctx)
	if err != nil {
		return nil, err
	}
	return readAll(r)
}

func (p *driverPrepared) update(ctx context.Context, params arrow.RecordBatch) (int64, error) {
	if err := p.bind(ctx, params); err != nil {
		return 0, err
	}
	return p.st.ExecuteUpdate(ctx)
}

func (p *driverPrepared) close(context.Context) error { return p.st.Close() }
