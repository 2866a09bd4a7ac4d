// Package data embeds the sample that the examples run on: the tables flights
// and airports. README.md tells where it comes from.
package data

import "embed"

// Files holds flights.parquet and airports.csv.
//
//go:embed flights.parquet airports.csv
var Files embed.FS
