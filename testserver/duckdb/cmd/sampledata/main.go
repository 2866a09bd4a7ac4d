// Command sampledata makes the sample in examples/data from the full data.
//
//	sampledata -from DIR -to DIR
//
// It takes every fourth flight, so it makes the same rows each time.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/flightpool/flightpool/testserver/duckdb"
)

func main() {
	from := flag.String("from", "", "folder with flights-3m.parquet and airports.csv")
	to := flag.String("to", "", "folder to write flights.parquet and airports.csv to")
	flag.Parse()
	if err := run(context.Background(), *from, *to); err != nil {
		fmt.Fprintln(os.Stderr, "sampledata:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, from, to string) (err error) {
	if from == "" || to == "" {
		return errors.New("-from and -to are needed")
	}
	airports, err := os.ReadFile(filepath.Join(from, "airports.csv"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(to, "airports.csv"), airports, 0o644); err != nil {
		return err
	}
	engine, err := duckdb.New(ctx, duckdb.Config{Settings: map[string]string{"threads": "1"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	db, err := engine.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	_, err = db.Update(ctx, fmt.Sprintf(`
		COPY (
			SELECT date, delay, distance, origin, destination
			FROM read_parquet(%s, file_row_number = true)
			WHERE file_row_number %% 4 = 0
			ORDER BY ALL
		) TO %s (FORMAT parquet, PARQUET_VERSION v2, COMPRESSION zstd, COMPRESSION_LEVEL 19)`,
		quote(filepath.Join(from, "flights-3m.parquet")), quote(filepath.Join(to, "flights.parquet"))), nil)
	return err
}

func quote(path string) string { return "'" + strings.ReplaceAll(path, "'", "''") + "'" }
