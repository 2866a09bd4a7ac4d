package testserver

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// readParams reads all batches; a stream without columns binds nothing.
func (h *handlers) readParams(rows array.RecordReader) ([]arrow.RecordBatch, error) {
	var params []arrow.RecordBatch
	for rows.Next() {
		if b := rows.RecordBatch(); b.NumCols() > 0 {
			if h.srv.profile.NullsAsText {
				b = nullsAsText(b)
			} else {
				b.Retain()
			}
			params = append(params, b)
		}
	}
	if err := rows.Err(); err != nil {
		releaseAll(params)
		if s, ok := status.FromError(err); ok { // of the stream that carries them
			return nil, s.Err()
		}
		return nil, status.Errorf(codes.InvalidArgument, "parameters: %v", err)
	}
	return params, nil
}

// nullsAsText returns a batch with the text null in place of each NULL of texts, or of no type.
func nullsAsText(b arrow.RecordBatch) arrow.RecordBatch {
	fields := b.Schema().Fields()
	columns := make([]arrow.Array, b.NumCols())
	for i, column := range b.Columns() {
		if id := column.DataType().ID(); id != arrow.STRING && id != arrow.NULL {
			column.Retain()
			columns[i] = column
			continue
		}
		texts := array.NewStringBuilder(memory.DefaultAllocator)
		for row := range column.Len() {
			if column.DataType().ID() == arrow.NULL || column.IsNull(row) {
				texts.Append("null")
			} else {
				texts.Append(column.ValueStr(row))
			}
		}
		columns[i] = texts.NewArray()
		texts.Release()
		fields[i].Type = arrow.BinaryTypes.String
	}
	made := array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, b.NumRows())
	for _, column := range columns {
		column.Release()
	}
	return made
}
