package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExportWritesEachForm(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out))
	require.Equal(t, `origin,flights,delay
ORD,41919,9.468761182280112
DFW,39350,7.710902160101652
ATL,31104,8.644161522633745
{"origin":"ORD","flights":41919,"delay":9.468761182280112}
{"origin":"DFW","flights":39350,"delay":7.710902160101652}
{"origin":"ATL","flights":31104,"delay":8.644161522633745}
DuckDB: 112373 flights
the C stream: 3 rows
the Arrow stream: 3 rows
the Parquet file: 3 rows, 3 columns
`, out.String())
}
