package testserver

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
)

func (h *handlers) DoPutCommandStatementUpdate(ctx context.Context, u flightsql.StatementUpdate) (int64, error) {
	st := Statement{SQL: u.GetQuery(), Kind: KindUpdate, Tx: string(u.GetTransactionId())}
	return h.update(ctx, st, nil)
}

// update runs a statement once for each row of params, which it owns.
func (h *handlers) update(ctx context.Context, st Statement, params []arrow.RecordBatch) (int64, error) {
	c := callOf(ctx)
	count := make(chan int64, 1)
	err := c.sess.do(ctx, c, st, params, func(ctx context.Context, engine EngineSession) error {
		n, err := updateAll(ctx, engine, st.SQL, params)
		c.sess.forgetSchemas(st.SQL)
		if err == nil {
			count <- n
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	n := <-count
	if h.srv.profile.ZeroCounts {
		n = 0
	}
	return n, nil
}

func updateAll(ctx context.Context, engine EngineSession, sql string, params []arrow.RecordBatch) (int64, error) {
	if len(params) == 0 {
		return engine.Update(ctx, sql, nil)
	}
	var sum int64
	for _, p := range params {
		n, err := engine.Update(ctx, sql, p)
		if err != nil {
			return 0, err
		}
		if n < 0 || sum < 0 {
			sum = -1
		} else {
			sum += n
		}
	}
	return sum, nil
}

func (h *handlers) DoPutCommandStatementIngest(ctx context.Context, r flightsql.StatementIngest, rows flight.MessageReader) (int64, error) {
	c := callOf(ctx)
	into := IngestTarget{
		Catalog: r.GetCatalog(), Schema: r.GetSchema(), Table: r.GetTable(),
		Temporary: r.GetTemporary(), Options: r.GetOptions(),
	}
	if o := r.GetTableDefinitionOptions(); o != nil {
		into.Create = o.IfNotExist == flightsql.TableDefinitionOptionsTableNotExistOptionCreate
		if o.IfExists == flightsql.TableDefinitionOptionsTableExistsOptionFail {
			into.Exists = IngestFail
		}
		if o.IfExists == flightsql.TableDefinitionOptionsTableExistsOptionReplace {
			into.Exists = IngestReplace
		}
	}
	// The rows arrive on the stream of this very RPC, so that the end of it
	// ends the ingest, whatever the profile says of cancels.
	st := Statement{SQL: "INGEST " + into.Table, Kind: KindIngest, Tx: string(r.GetTransactionId())}
	var stored int64
	err := c.sess.execute(ctx, c, st, func(ctx context.Context, engine EngineSession) (err error) {
		stored, err = engine.Ingest(ctx, into, rows)
		return err
	})
	return stored, err
}
