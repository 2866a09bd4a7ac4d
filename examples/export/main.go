// Command export runs a query once for each form in which programs hand results on: CSV,
// JSON, an Arrow stream, Parquet, a table in a DuckDB of this process, and Arrow's C stream
// for code that is not Go. A result is an array.RecordReader, so that Arrow's own writers
// take it; batch by batch, so that it may be larger than the memory.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/csv"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	duckdbgo "github.com/duckdb/duckdb-go/v2"

	"github.com/flightpool/flightpool/examples/data"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/duckdb"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

const busiest = `SELECT origin, count(*) AS flights, avg(delay) AS delay FROM flights GROUP BY origin ORDER BY flights DESC, origin LIMIT 3`

func run(ctx context.Context, out io.Writer) error {
	// A Flight SQL server in this process, with real data. You have your own.
	server, err := duckdb.Start(ctx, duckdb.Config{Tables: data.Files}, testserver.Options{})
	if err != nil {
		return err
	}
	defer server.Close()
	pool, err := flightpool.New(ctx, "grpc://"+server.Addr(), flightpool.Config{})
	if err != nil {
		return err
	}
	defer pool.Close(ctx)

	var arrow, file bytes.Buffer // os.Create gives the same
	for _, export := range []func(*flightpool.QueryResult) error{
		func(r *flightpool.QueryResult) error { return writeCSV(out, r) },
		func(r *flightpool.QueryResult) error { return writeJSON(out, r) },
		func(r *flightpool.QueryResult) error { return writeArrow(&arrow, r) },
		func(r *flightpool.QueryResult) error { return writeParquet(&file, r) },
		func(r *flightpool.QueryResult) error { return queryView(ctx, out, r) },
		func(r *flightpool.QueryResult) error { return passToC(out, r) },
	} {
		result, err := pool.Query(ctx, busiest)
		if err != nil {
			return err
		}
		err = export(result)
		result.Release() // also where the result was not read to its end
		if err != nil {
			return err
		}
	}
	if err := printArrow(out, &arrow); err != nil {
		return err
	}
	return printParquet(ctx, out, file.Bytes())
}

// writeCSV writes a header and the rows.
func writeCSV(to io.Writer, result array.RecordReader) error {
	w := csv.NewWriter(to, result.Schema(), csv.WithHeader(true))
	for result.Next() {
		if err := w.Write(result.RecordBatch()); err != nil {
			return err
		}
	}
	return errors.Join(result.Err(), w.Flush(), w.Error()) // Err tells if rows are missing
}

// writeJSON writes an object a line.
func writeJSON(to io.Writer, result array.RecordReader) error {
	for result.Next() {
		if err := array.RecordToJSON(result.RecordBatch(), to); err != nil {
			return err
		}
	}
	return result.Err()
}

// writeArrow writes an IPC stream. A file with an index is ipc.NewFileWriter's.
func writeArrow(to io.Writer, result array.RecordReader) error {
	w := ipc.NewWriter(to, ipc.WithSchema(result.Schema()))
	for result.Next() {
		if err := w.Write(result.RecordBatch()); err != nil {
			return err
		}
	}
	if err := result.Err(); err != nil {
		return err // without its end, nobody takes the stream for whole
	}
	return w.Close()
}

// writeParquet writes a file. It is readable only after Close. arrow-go v18 writes decimals, half
// floats and dictionaries in structs that are NULL in some rows wrongly, without an error: the rows
// behind get values of others. Have the server flatten such columns; cmd/flightpool does not have
// the fault.
func writeParquet(to io.Writer, result array.RecordReader) error {
	w, err := pqarrow.NewFileWriter(result.Schema(), to, parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Zstd)), pqarrow.NewArrowWriterProperties())
	if err != nil {
		return err
	}
	for result.Next() {
		if err := w.WriteBuffered(result.RecordBatch()); err != nil {
			return err
		}
	}
	if err := result.Err(); err != nil {
		return err
	}
	return w.Close()
}

// queryView puts the result into a DuckDB of this process and asks about it there. The view
// is only good for reading all its columns in their order, into a table: with fewer of them
// DuckDB's scan (1.5, through its C interface) takes one column for another.
func queryView(ctx context.Context, out io.Writer, result array.RecordReader) error {
	connector, err := duckdbgo.NewConnector("", nil)
	if err != nil {
		return err
	}
	defer connector.Close()
	conn, err := connector.Connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	local, err := duckdbgo.NewArrowFromConn(conn)
	if err != nil {
		return err
	}
	drop, err := local.RegisterView(result, "result")
	if err != nil {
		return err
	}
	defer drop()
	rows, err := local.QueryContext(ctx, "CREATE TABLE busiest AS SELECT * FROM result; SELECT sum(flights)::BIGINT FROM busiest")
	if err != nil {
		return err
	}
	defer rows.Release()
	for rows.Next() {
		fmt.Fprintln(out, "DuckDB:", rows.RecordBatch().Column(0).(*array.Int64).Value(0), "flights")
	}
	return errors.Join(rows.Err(), result.Err())
}

// passToC hands the result to code that takes an ArrowArrayStream, and is that code here.
func passToC(out io.Writer, result array.RecordReader) error {
	var stream cdata.CArrowArrayStream
	cdata.ExportRecordReader(result, &stream) // it holds the result until it is released
	reader, err := cdata.ImportCRecordReader(&stream, nil)
	if err != nil {
		return err
	}
	n := int64(0)
	for {
		batch, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		n += batch.NumRows()
	}
	fmt.Fprintln(out, "the C stream:", n, "rows")
	return nil
}

func printArrow(out io.Writer, stream io.Reader) error {
	r, err := ipc.NewReader(stream)
	if err != nil {
		return err
	}
	defer r.Release()
	n := int64(0)
	for r.Next() {
		n += r.RecordBatch().NumRows()
	}
	fmt.Fprintln(out, "the Arrow stream:", n, "rows")
	return r.Err()
}

func printParquet(ctx context.Context, out io.Writer, file []byte) error {
	table, err := pqarrow.ReadTable(ctx, bytes.NewReader(file), nil, pqarrow.ArrowReadProperties{}, nil)
	if err != nil {
		return err
	}
	defer table.Release()
	fmt.Fprintln(out, "the Parquet file:", table.NumRows(), "rows,", table.NumCols(), "columns")
	return nil
}
