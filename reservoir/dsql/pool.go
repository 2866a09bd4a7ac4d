package dsql

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/usedup"
)

// A Pool lends pgx connections, with the methods of pgxpool that sqlc and other
// users of pgx expect. It is safe for concurrent use.
type Pool struct {
	view  *view
	close func(context.Context) error
}

// NewPool makes a Cluster of its own and a pool of all of it. It does not wait
// for connections: see WaitReady. Closing the pool closes the cluster.
func NewPool(ctx context.Context, cfg Config) (*Pool, error) {
	c, err := NewCluster(ctx, cfg)
	if err != nil {
		return nil, err
	}
	part, err := c.view(View{})
	if err != nil {
		return nil, errjoin.Join(err, c.Close(ctx))
	}
	return &Pool{view: part, close: c.Close}, nil
}

// Acquire borrows a connection, and waits for one until ctx or AcquireTimeout
// ends; the error is then an *EmptyError, which is ErrReservoirEmpty. While no
// connection can be opened at all it is an *OpenError, at once; where none is kept
// ready, those who come after the pause of up to 5s wait for the open that finds
// out whether that still is so. The caller must Release it.
func (p *Pool) Acquire(ctx context.Context) (*Conn, error) {
	l, err := p.view.acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &Conn{conn: l.Value().pgx(), loan: l}, nil
}

// AcquireFunc calls f with a connection and releases it afterwards.
func (p *Pool) AcquireFunc(ctx context.Context, f func(*Conn) error) error {
	c, err := p.Acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release()
	return f(c)
}

// AcquireAllIdle borrows every connection that is ready now, as far as the pool
// may have them. It does not wait. The caller must Release each.
func (p *Pool) AcquireAllIdle(ctx context.Context) (all []*Conn) {
	complete := false
	defer func() {
		if !complete { // BeforeAcquire panicked
			for _, c := range all {
				c.Release()
			}
		}
	}()
	for ctx.Err() == nil {
		if admitted, err := p.view.quota.tryAcquire(); err != nil || !admitted {
			break
		}
		l := p.borrowIdleOrRelease(ctx)
		if l == nil {
			break
		}
		all = append(all, &Conn{conn: l.Value().pgx(), loan: l})
	}
	complete = true
	return all
}

// borrowIdleOrRelease borrows an idle connection for a view whose quota has granted
// one, or releases that grant.
func (p *Pool) borrowIdleOrRelease(ctx context.Context) (l *loan) {
	defer func() {
		if l == nil {
			p.view.quota.release()
		}
	}()
	return p.view.borrowIdle(ctx)
}

// Exec runs a statement on a connection of the pool. When ctx ends, the server is
// asked to cancel the statement, as for every call of a Pool (see Conn).
func (p *Pool) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	c, err := p.Acquire(ctx)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	defer c.Release()
	return c.Exec(ctx, sql, args...)
}

// Query runs a query. Its connection is released when the rows are closed or
// read to the end. As with pgx, the error is also that of the rows.
func (p *Pool) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	c, err := p.Acquire(ctx)
	if err != nil {
		return failedRows{err}, err
	}
	var r pgx.Rows
	c.handOver(func() bool {
		r, err = c.query(ctx, c, sql, args...)
		return err == nil
	})
	if err != nil {
		return failedRows{err}, err
	}
	return r, nil
}

// QueryRow runs a query for one row. Its connection is released by Scan, which
// must be called, and also gives the error.
func (p *Pool) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	c, err := p.Acquire(ctx)
	if err != nil {
		return failedRows{err}
	}
	var r pgx.Row
	c.handOver(func() bool {
		r = c.queryRow(ctx, c, sql, args...)
		return true
	})
	return r
}

// SendBatch sends a batch. Its connection is released when the results are
// closed, which must be done; when the batch began a transaction, by that one's
// Commit or Rollback.
func (p *Pool) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	c, err := p.Acquire(ctx)
	if err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	var r pgx.BatchResults
	c.handOver(func() bool {
		r = c.sendBatch(ctx, b, true)
		return true
	})
	return r
}

// CopyFrom copies rows into a table, as Conn's. DSQL allows 3,000 in one
// transaction.
func (p *Pool) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	c, err := p.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer c.Release()
	return c.CopyFrom(ctx, table, columns, source)
}

// Begin begins a transaction with the default options.
func (p *Pool) Begin(ctx context.Context) (pgx.Tx, error) { return p.BeginTx(ctx, pgx.TxOptions{}) }

// BeginTx begins a transaction. Its connection is released by Commit or
// Rollback, one of which must be called. Commit fails with ErrCommitUnknown when
// the outcome cannot be known.
func (p *Pool) BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error) {
	c, err := p.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	var t pgx.Tx
	c.handOver(func() bool {
		t, err = c.begin(ctx, opts, true)
		return err == nil
	})
	return t, err
}

// InTx calls f in a transaction, commits it, and does all of it again after a
// conflict, as RetryOCC does. f must have no effects besides, and makes the sources of its CopyFrom: where the
// rows of one were read by a run before, its CopyFrom fails. It need not commit: where it has, InTx
// fails, with ErrCommitUnknown unless its Commit has said that nothing is stored.
func (p *Pool) InTx(ctx context.Context, f func(pgx.Tx) error) error {
	return p.InTxWith(ctx, TxOptions{}, f)
}

// TxOptions are how a transaction begins, and how often it runs.
type TxOptions struct {
	pgx.TxOptions
	OCC OCCPolicy
}

// InTxWith is InTx with options.
func (p *Pool) InTxWith(ctx context.Context, opts TxOptions, f func(pgx.Tx) error) error {
	used := &usedup.Sources{}
	return opts.OCC.Do(ctx, func(ctx context.Context) error {
		used.NextRun()
		begun := &tx{}
		err := pgx.BeginTxFunc(ctx, p, opts.TxOptions, func(t pgx.Tx) error {
			begun, _ = t.(*tx)
			begun.used = used
			return f(t)
		})
		if err != nil && begun.commits.Load() > 0 { // by f, or by a goroutine that it has left
			return mayBeStored(err)
		}
		return err
	})
}

// Ping proves that a connection works.
func (p *Pool) Ping(ctx context.Context) error {
	return p.AcquireFunc(ctx, func(c *Conn) error { return c.Ping(ctx) })
}

// WaitReady is the Cluster's.
func (p *Pool) WaitReady(ctx context.Context, n int) error { return p.view.cluster.WaitReady(ctx, n) }

// Reset is the Cluster's: other pools of it lose their connections too.
func (p *Pool) Reset() { p.view.cluster.Reset() }

// Config is a copy of the Cluster's configuration, defaults filled in.
func (p *Pool) Config() Config { return p.view.cluster.Config() }

// Stats is the Cluster's.
func (p *Pool) Stats() Stats { return p.view.cluster.Stats() }

// Cluster is what the connections come from.
func (p *Pool) Cluster() *Cluster { return p.view.cluster }

// Close refuses callers and waits for loans until ctx ends. A pool with a
// cluster of its own then cuts what is left and closes all.
func (p *Pool) Close(ctx context.Context) error { return p.close(ctx) }
