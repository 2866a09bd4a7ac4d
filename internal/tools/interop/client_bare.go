package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

// bareClient is arrow-go's client, used as its documentation does.
type bareClient struct {
	c    *flightsql.Client
	auth string // the authorization header of every call, or empty
}

func newBareClient(ctx context.Context, p *product, addr string) (client, error) {
	cookies := []flight.ClientMiddleware{flight.NewClientCookieMiddleware()}
	c, err := flightsql.NewClient(addr, nil, cookies, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	b := bareClient{c: c, auth: p.authorization}
	if p.user == "" {
		return b, nil
	}
	in, err := c.Client.AuthenticateBasicToken(ctx, p.user, p.password)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if md, ok := metadata.FromOutgoingContext(in); ok && len(md.Get("authorization")) > 0 {
		b.auth = md.Get("authorization")[0]
	}
	return b, nil
}

// with adds the credential to a call.
func (c bareClient) with(ctx context.Context) context.Context {
	if c.auth == "" {
		return ctx
	}
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", c.auth)
	return metadata.AppendToOutgoingContext(ctx, "x-deephaven-auth-cookie-request", "true") // in place of tokens in replies
}

// fetch reads the parts of a result one after the other.
func (c bareClient) fetch(ctx context.Context, info *flight.FlightInfo, err error) (rows, error) {
	if err != nil {
		return rows{}, err
	}
	var all rows
	for _, part := range info.Endpoint {
		r, err := c.c.DoGet(ctx, part.Ticket)
		if err != nil {
			return rows{}, err
		}
		got, err := readRows(r)
		r.Release()
		if err != nil {
			return rows{}, err
		}
		all.count += got.count
		all.text += got.text
	}
	return all, nil
}

func (c bareClient) query(ctx context.Context, sql string, params arrow.RecordBatch) (rows, error) {
	ctx = c.with(ctx)
	if params == nil {
		info, err := c.c.Execute(ctx, sql)
		return c.fetch(ctx, info, err)
	}
	stmt, err := c.c.Prepare(ctx, sql)
	if err != nil {
		return rows{}, err
	}
	stmt.SetParameters(params)
	info, err := stmt.Execute(ctx)
	got, err := c.fetch(ctx, info, err)
	return got, errors.Join(err, stmt.Close(ctx))
}

func (c bareClient) update(ctx context.Context, sql string, params arrow.RecordBatch) error {
	ctx = c.with(ctx)
	if params == nil {
		_, err := c.c.ExecuteUpdate(ctx, sql)
		return err
	}
	stmt, err := c.c.Prepare(ctx, sql)
	if err != nil {
		return err
	}
	stmt.SetParameters(params)
	_, err = stmt.ExecuteUpdate(ctx)
	return errors.Join(err, stmt.Close(ctx))
}

func (c bareClient) prepared(ctx context.Context, sql string) (got rows, err error) {
	ctx = c.with(ctx)
	stmt, err := c.c.Prepare(ctx, sql)
	if err != nil {
		return rows{}, err
	}
	for range 2 {
		info, err := stmt.Execute(ctx)
		if got, err = c.fetch(ctx, info, err); err != nil {
			return rows{}, errors.Join(err, stmt.Close(ctx))
		}
	}
	return got, stmt.Close(ctx)
}

func (c bareClient) transaction(ctx context.Context, commit bool, changes ...string) error {
	ctx = c.with(ctx)
	tx, err := c.c.BeginTransaction(ctx)
	if err != nil {
		return err
	}
	for _, sql := range changes {
		if _, err := tx.ExecuteUpdate(ctx, sql); err != nil {
			return errors.Join(err, tx.Rollback(ctx))
		}
	}
	if commit {
		return tx.Commit(ctx)
	}
	return tx.Rollback(ctx)
}

func (c bareClient) ingest(ctx context.Context, table string, batch arrow.RecordBatch) error {
	reader, err := array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch})
	if err != nil {
		return err
	}
	defer reader.Release()
	_, err = c.c.ExecuteIngest(c.with(ctx), reader, &flightsql.ExecuteIngestOpts{Table: table, TableDefinitionOptions: &flightsql.TableDefinitionOptions{
		IfNotExist: flightsql.TableDefinitionOptionsTableNotExistOptionFail,
		IfExists:   flightsql.TableDefinitionOptionsTableExistsOptionAppend,
	}})
	return err
}

func (c bareClient) catalogue(ctx context.Context, call catalogueCall, table string) (int64, error) {
	ctx = c.with(ctx)
	var info *flight.FlightInfo
	var err error
	switch call {
	case catalogs:
		info, err = c.c.GetCatalogs(ctx)
	case schemas:
		info, err = c.c.GetDBSchemas(ctx, &flightsql.GetDBSchemasOpts{})
	case tables:
		info, err = c.c.GetTables(ctx, &flightsql.GetTablesOpts{})
	case tableTypes:
		info, err = c.c.GetTableTypes(ctx)
	case primaryKeys:
		info, err = c.c.GetPrimaryKeys(ctx, flightsql.TableRef{Table: table})
	case sqlInfo:
		info, err = c.c.GetSqlInfo(ctx, nil)
	default:
		return 0, fmt.Errorf("%s: %w", call, errNoCall)
	}
	got, err := c.fetch(ctx, info, err)
	return got.count, err
}

func (c bareClient) close(context.Context) error { return c.c.Close() }
