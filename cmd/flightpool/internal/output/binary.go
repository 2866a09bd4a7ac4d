package output

import (
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/util"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// rowGroupBytes bounds what a row group takes before it is written, as Arrow data.
const rowGroupBytes = 16 << 20

// An arrowWriter writes an Arrow IPC stream.
type arrowWriter struct{ out *ipc.Writer }

func newArrow(w io.Writer, schema *arrow.Schema) *arrowWriter {
	return &arrowWriter{ipc.NewWriter(w, ipc.WithSchema(schema))}
}

func (a *arrowWriter) Write(batch arrow.RecordBatch) error { return a.out.Write(batch) }
func (a *arrowWriter) Close() error                        { return a.out.Close() }

// A parquetWriter gathers batches to row groups.
type parquetWriter struct {
	out  *pqarrow.FileWriter
	held int64
}

func newParquet(w io.Writer, schema *arrow.Schema) (*parquetWriter, error) {
	out, err := pqarrow.NewFileWriter(schema, struct{ io.Writer }{w}, // Close must not close w
		parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Snappy)),
		pqarrow.NewArrowWriterProperties(pqarrow.WithStoreSchema()))
	if err != nil {
		return nil, fmt.Errorf("as Parquet: %w", err)
	}
	return &parquetWriter{out: out}, nil
}

func (p *parquetWriter) Write(batch arrow.RecordBatch) error {
	if batch.NumRows() == 0 {
		return nil
	}
	if p.held > rowGroupBytes {
		p.held = 0
		if err := p.out.NewBufferedRowGroupChecked(); err != nil {
			return err
		}
	}
	p.held += util.TotalRecordSize(batch)
	return p.out.WriteBuffered(batch)
}

func (p *parquetWriter) Close() error { return p.out.Close() }
