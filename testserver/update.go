package testserver

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"

	"github.com/flightpool/flightpool/testserver/engine"
	"github.com/flightpool/flightpool/testserver/internal/sqltext"
)

func (h *handlers) DoPutCommandStatementUpdate(ctx context.Context, u flightsql.StatementUpdate) (int64, error) {
	st := Statement{SQL: u.GetQuery(), Kind: KindUpdate, Tx: string(u.GetTransactionId())}
	return h.unpreparedUpdate(ctx, st)
}

// unpreparedUpdate runs a statement that is not prepared.
func (h *handlers) unpreparedUpdate(ctx context.Context, st Statement) (int64, error) {
	n, err := h.update(ctx, st, nil)
	if h.srv.profile.ZeroCounts {
		n = 0
	}
	return n, err
}

// commandResult answers DoGet for a command: it tells the count and drops the rows.
func (h *handlers) commandResult(ctx context.Context, n int64, err error) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	if err != nil {
		return nil, nil, err
	}
	h.setAffectedHeader(ctx, n)
	return arrow.NewSchema(nil, nil), h.send(ctx, nil), nil
}

// update runs a statement once for each row of params, which it owns.
func (h *handlers) update(ctx context.Context, st Statement, params []arrow.RecordBatch) (int64, error) {
	c := callOf(ctx)
	if err := h.srv.profile.checkText(st.SQL); err != nil {
		releaseAll(params)
		return 0, err
	}
	if h.srv.profile.ByText && len(sqltext.Statements(st.SQL)) == 0 {
		c.sess.restartTTL()
		releaseAll(params)
		return 0, nil
	}
	count := make(chan int64, 1)
	err := c.sess.runStatement(ctx, c, st, params, func(ctx context.Context, db engine.Session) error {
		n, err := h.updateAll(ctx, db, st.SQL, params)
		c.sess.clearSchemaCache(st.SQL)
		if err == nil {
			count <- n
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return <-count, nil
}

func (h *handlers) updateAll(ctx context.Context, db engine.Session, sql string, params []arrow.RecordBatch) (int64, error) {
	if len(params) == 0 {
		return db.Update(ctx, sql, nil)
	}
	if into, ok := insertionOf(sql); ok && h.srv.profile.AppendTo != "" {
		return h.appendRows(ctx, db, into, params)
	}
	var sum int64
	for _, p := range params {
		n, err := db.Update(ctx, sql, p)
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
	into := engine.IngestTarget{
		Catalog: r.GetCatalog(), Schema: r.GetSchema(), Table: r.GetTable(),
		Temporary: r.GetTemporary(), Options: r.GetOptions(),
	}
	if o := r.GetTableDefinitionOptions(); o != nil {
		into.Create = o.IfNotExist == flightsql.TableDefinitionOptionsTableNotExistOptionCreate
		if o.IfExists == flightsql.TableDefinitionOptionsTableExistsOptionFail {
			into.Exists = engine.IngestFail
		}
		if o.IfExists == flightsql.TableDefinitionOptionsTableExistsOptionReplace {
			into.Exists = engine.IngestReplace
		}
	}
	// The rows arrive on the stream of this very RPC, so that the end of it
	// ends the ingest, whatever the profile says of cancels.
	st := Statement{SQL: "INGEST " + into.Table, Kind: KindIngest, Tx: string(r.GetTransactionId())}
	var stored int64
	err := c.sess.runInTurn(ctx, c, st, func(ctx context.Context, db engine.Session) (err error) {
		stored, err = db.Ingest(ctx, into, rows)
		return err
	})
	return stored, err
}
