package flightconn

import (
	"context"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Query is part of backend.Conn. It has the server plan the statement
// (GetFlightInfo) and returns when its first rows are on their way (DoGet). The
// RPCs of the stream go on after Query has returned, until its end, its Close
// or the end of ctx.
func (c *Conn) Query(ctx context.Context, sql string, call backend.Call) (backend.Stream, error) {
	return c.query(ctx, sql, call, false)
}

// query is Query; beside says that it runs while another call does, and is not
// to count in RoundTrips.
func (c *Conn) query(ctx context.Context, sql string, call backend.Call, beside bool) (backend.Stream, error) {
	ctx, r, err := c.begin(ctx, "Query", call.Headers)
	if err != nil {
		return nil, err
	}
	if beside {
		r.sends.trips = nil
	}
	return r.query(ctx, &pb.CommandStatementQuery{Query: sql, TransactionId: r.txID(call.Tx)}, call)
}

// Metadata is part of backend.Conn. The answer is a result like any other, and
// goes the way of a query.
func (c *Conn) Metadata(ctx context.Context, req backend.MetadataRequest, call backend.Call) (backend.Stream, error) {
	ctx, r, err := c.begin(ctx, req.Kind.String(), call.Headers)
	if err != nil {
		return nil, err
	}
	cmd := metadataCommand(req)
	if cmd == nil {
		defer r.end()
		if req.Kind > backend.MetadataTypeInfo {
			return nil, r.usageError("no such call")
		}
		return nil, r.usageError("a table name is needed")
	}
	return r.query(ctx, cmd, call)
}

// metadataCommand is nil if req makes no sense. Keys are of one table, which
// must be named. Filters that are nil stay absent: an empty one is a filter
// too.
func metadataCommand(req backend.MetadataRequest) proto.Message {
	table := ""
	if req.Table != nil {
		table = *req.Table
	}
	switch req.Kind {
	case backend.MetadataCatalogs:
		return &pb.CommandGetCatalogs{}
	case backend.MetadataSchemas:
		return &pb.CommandGetDbSchemas{Catalog: req.Catalog, DbSchemaFilterPattern: req.Schema}
	case backend.MetadataTables:
		return &pb.CommandGetTables{
			Catalog: req.Catalog, DbSchemaFilterPattern: req.Schema, TableNameFilterPattern: req.Table,
			TableTypes: req.TableTypes, IncludeSchema: req.IncludeColumns,
		}
	case backend.MetadataTableTypes:
		return &pb.CommandGetTableTypes{}
	case backend.MetadataSQLInfo:
		return &pb.CommandGetSqlInfo{Info: req.Info}
	case backend.MetadataTypeInfo:
		return &pb.CommandGetXdbcTypeInfo{}
	case backend.MetadataPrimaryKeys, backend.MetadataImportedKeys, backend.MetadataExportedKeys:
		if table == "" {
			return nil
		}
	default:
		return nil
	}
	switch req.Kind {
	case backend.MetadataImportedKeys:
		return &pb.CommandGetImportedKeys{Catalog: req.Catalog, DbSchema: req.Schema, Table: table}
	case backend.MetadataExportedKeys:
		return &pb.CommandGetExportedKeys{Catalog: req.Catalog, DbSchema: req.Schema, Table: table}
	default:
		return &pb.CommandGetPrimaryKeys{Catalog: req.Catalog, DbSchema: req.Schema, Table: table}
	}
}

// query plans cmd and opens its result. It ends r unless it returns a stream,
// which does so then.
//
// From the plan on the server knows the statement by its FlightInfo, which a
// cancel needs. A failure before is StageExecute, one after StageFetch: on
// servers that execute a statement to plan it, the former may have had its
// effect.
func (r *rpcCall) query(ctx context.Context, cmd proto.Message, call backend.Call) (backend.Stream, error) {
	desc, err := r.descriptor(cmd)
	var info *Info
	if err == nil {
		info, err = r.planWithProgress(ctx, desc, string(cmd.ProtoReflect().Descriptor().Name()), call)
	}
	if err != nil {
		r.end()
		return nil, r.wrapError(backend.StageExecute, err)
	}
	call.Op.SetName(info)
	s, err := r.open(ctx, info)
	if err != nil {
		r.end()
		return nil, r.wrapError(backend.StageFetch, err)
	}
	return s, nil
}

// plan asks for the FlightInfo of a command.
func (r *rpcCall) plan(ctx context.Context, cmd proto.Message) (*Info, error) {
	desc, err := r.descriptor(cmd)
	if err != nil {
		return nil, err
	}
	return r.getFlightInfo(ctx, desc)
}

// descriptor packs a command, unless the server would refuse its size. The
// bound is on the command alone; Config.RequestLimit leaves room for what is
// around it.
func (r *rpcCall) descriptor(cmd proto.Message) (*pb.FlightDescriptor, error) {
	var packed anypb.Any
	if err := packed.MarshalFrom(cmd); err != nil {
		return nil, err
	}
	body, err := proto.Marshal(&packed)
	if err != nil {
		return nil, err
	}
	if limit := r.conn.cfg().RequestLimit; len(body) > limit {
		return nil, &tooLargeError{what: "the statement", size: len(body), limit: limit}
	}
	return &pb.FlightDescriptor{Type: pb.FlightDescriptor_CMD, Cmd: body}, nil
}

// txID is the transaction of the call as a command names it. The field is kept
// absent outside transactions: an empty id is not none. A call that names one
// is answered by this session or not at all (callInfo.needsSession), so it must
// be asked before the RPC.
func (r *rpcCall) txID(tx backend.TxID) []byte {
	if tx == "" {
		return nil
	}
	r.info.needsSession = true
	return []byte(tx)
}
