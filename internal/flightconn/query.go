package flightconn

import (
	"context"
	"time"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/backoff"
	"github.com/flightpool/flightpool/internal/effect"
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
	body, err := packAny(cmd)
	if err != nil {
		return nil, err
	}
	if limit := r.conn.cfg().RequestLimit; len(body) > limit {
		return nil, &tooLargeError{what: "the statement", size: len(body), limit: limit}
	}
	return &pb.FlightDescriptor{Type: pb.FlightDescriptor_CMD, Cmd: body}, nil
}

// packAny encodes an Any that has m, as anypb does by way of two messages more.
func packAny(m proto.Message) ([]byte, error) {
	const prefix = "type.googleapis.com/"
	name, size := m.ProtoReflect().Descriptor().FullName(), proto.Size(m)
	b := make([]byte, 0, len(prefix)+len(name)+size+16)
	b = protowire.AppendTag(b, fieldAnyType, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(len(prefix)+len(name)))
	b = append(append(b, prefix...), name...)
	if size == 0 {
		return b, nil
	}
	b = protowire.AppendTag(b, fieldAnyValue, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(size))
	return encode(b, m)
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

// Servers answer a poll when there is something to tell. One that answers at
// once and has nothing to tell is asked less and less often.
const (
	minPollInterval = 50 * time.Millisecond
	maxPollInterval = time.Second
)

// planWithProgress asks for the FlightInfo of a query: by PollFlightInfo if the call
// wants to hear of its progress and the server has that for such a command.
//
// kind is the name of the command's message: a server may have the call for
// queries and not for catalogue calls, so each kind is learned by itself. A
// server that lacks it costs one round trip, once for the endpoint. opts go
// with GetFlightInfo alone.
func (r *rpcCall) planWithProgress(ctx context.Context, desc *pb.FlightDescriptor, kind string, call backend.Call, opts ...grpc.CallOption) (*Info, error) {
	r.mayChange, r.changesSeveral = call.MayChange, call.ChangesSeveral
	if call.Progress == nil || call.ChangesSeveral { // a poll that the server lacks is followed by another call
		return r.getFlightInfo(ctx, desc, opts...)
	}
	if polls := r.conn.endpoint.capabilities.forAction("PollFlightInfo " + kind); !polls.isMissing() {
		info, err := r.poll(ctx, desc, call)
		if !isUnsupported(err) || call.MayChange && effect.Of(effect.Statement, err) != effect.Refused { // a page of a proxy's
			return info, err
		}
		other, otherErr := r.getFlightInfo(ctx, desc, opts...)
		if isLack(err) && !sameStatus(otherErr, err) { // else the server may refuse everything for a while
			polls.markMissing()
		}
		return other, otherErr
	}
	return r.getFlightInfo(ctx, desc, opts...)
}

// poll asks until the FlightInfo is complete. Only the first answer may be
// that the server cannot do it: by the second the query runs.
//
// INVARIANT: polls are at least minPollInterval apart, and maxPollInterval while
// nothing changes, whatever the server answers; ctx ends them.
//
// INVARIANT: a query that was answered a poll counts as running until it is planned or
// the server says that it has failed. That a later poll is refused does not end it.
//
// The server says by the absence of a descriptor that the query is planned.
// Until then each answer has the descriptor of the next poll, and perhaps a
// FlightInfo with the endpoints so far, by which the query can be cancelled.
// Progress is told after each answer, and 1 at the end.
func (r *rpcCall) poll(ctx context.Context, desc *pb.FlightDescriptor, call backend.Call) (*Info, error) {
	interval := minPollInterval
	last, endpoints := -1.0, 0
	for first := true; ; first = false {
		asked := time.Now()
		info, reply, err := r.pollFlightInfo(ctx, desc)
		if err != nil {
			if !first && !statementFailed(err) {
				r.sends.unendedStatements.Add(1)
			}
			if !first && isUnsupported(err) {
				err = malformed("a poll was answered, the next is refused: %v", err) // not wrapped: it would pass for the first
			}
			return nil, err
		}
		n := 0
		if info != nil {
			n = info.Len()
			call.Op.SetName(info)
		}
		if desc = reply.GetFlightDescriptor(); desc == nil {
			if info == nil {
				return nil, malformed("a complete query without a FlightInfo")
			}
			call.Progress(1, true)
			return info, nil
		}
		fraction, known := reply.GetProgress(), reply.Progress != nil
		if !(fraction >= 0 && fraction <= 1) { // not a number included
			fraction, known = 0, false
		}
		call.Progress(fraction, known)
		if fraction != last || n != endpoints {
			last, endpoints, interval = fraction, n, minPollInterval
		} else {
			interval = min(2*interval, maxPollInterval)
		}
		if err := backoff.Sleep(ctx, interval-time.Since(asked)); err != nil {
			return nil, err
		}
	}
}

// pollFlightInfo makes one poll. The FlightInfo of its answer stays encoded and
// is nil if there is none.
func (r *rpcCall) pollFlightInfo(ctx context.Context, desc *pb.FlightDescriptor) (*Info, *pb.PollInfo, error) {
	encoded, err := r.invokeEncoded(ctx, servicePrefix+"PollFlightInfo", desc)
	if err != nil {
		return nil, nil, err
	}
	var info, others []byte
	var has bool
	for rest := encoded; len(rest) > 0; {
		num, value, n := consumeBytesField(rest)
		if n < 0 {
			return nil, nil, malformed("PollInfo: %w", protowire.ParseError(n))
		}
		if num == fieldPollInfo {
			info = append(info, value...) // of a message that comes in parts the parts count as one
			has = true
		} else {
			others = append(others, rest[:n]...)
		}
		rest = rest[n:]
	}
	reply := &pb.PollInfo{}
	if err := proto.Unmarshal(others, reply); err != nil {
		return nil, nil, malformed("PollInfo: %w", err)
	}
	if !has {
		return nil, reply, nil
	}
	in, err := newInfo(info)
	return in, reply, err
}
