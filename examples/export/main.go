// Command export runs a query once for each form in which programs hand results on: CSV,
// JSON, an Arrow stream, Parquet, a table in a DuckDB of this process, and Arrow's C stream
// for code that is not Go. The first four are package export's. A result is an
// array.RecordReader, which Arrow's own writers take too; batch by batch, so that it may be
// larger than the memory.
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
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	duckdbgo "github.com/duckdb/duckdb-go/v2"

	"github.com/flightpool/flightpool/examples/data"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/export"
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
	write := func(to io.Writer, form export.Format) func(*flightpool.QueryResult) error {
		return func(r *flightpool.QueryResult) error {
			_, err := export.Write(to, r, form)
			return err
		}
	}
	for _, use := range []func(*flightpool.QueryResult) error{
		write(out, export.CSV), write(out, export.JSON), write(&arrow, export.Arrow), write(&file, export.Parquet),
		func(r *flightpool.QueryResult) error { return queryView(ctx, out, r) },
		func(r *flightpool.QueryResult) error { return passToC(out, r) },
	} {
		result, err := pool.Query(ctx, busiest)
		if err != nil {
			return err
		}
		err = use(result)
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
