package adbcpool

import (
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/internal/tools/valuegen"
	"github.com/flightpool/flightpool/rowscan"
)

func TestHuntConcat(t *testing.T) {
	kinds, ex := map[string]int{}, map[string]string{}
	for seed := range uint64(20000) {
		g := valuegen.New(seed)
		col, want := g.Column(12, 3)
		schema := arrow.NewSchema([]arrow.Field{{Name: "v", Type: col.DataType(), Nullable: true}}, nil)
		whole := array.NewRecordBatch(schema, []arrow.Array{col}, int64(col.Len()))
		var parts []arrow.RecordBatch
		for from := int64(0); from < int64(col.Len()); {
			to := min(int64(col.Len()), from+1+int64(g.IntN(5)))
			parts = append(parts, whole.NewSlice(from, to))
			from = to
		}
		func() {
			defer func() {
				if p := recover(); p != nil {
					k := fmt.Sprint("PANIC ", p)
					kinds[k]++
					ex[k] = fmt.Sprint(seed, col.DataType())
				}
			}()
			got, err := concat(schema, parts)
			if err != nil {
				kinds["loud"]++
				k := fmt.Sprint("loud ", err)
				if len(k) > 90 {
					k = k[:90]
				}
				kinds[k]++
				return
			}
			if int(got.NumRows()) != len(want) {
				kinds["ROWS"]++
				ex["ROWS"] = fmt.Sprint(seed, col.DataType())
				return
			}
			for row, v := range want {
				if !valuegen.SameJSON(string(rowscan.AppendJSON(nil, got.Column(0), row)), v) {
					kinds["WRONG"]++
					ex["WRONG"] += fmt.Sprint(seed, " ", col.DataType(), "\n")
					return
				}
			}
			kinds["ok"]++
		}()
	}
	for k, n := range kinds {
		x := ex[k]
		if len(x) > 1500 {
			x = x[:1500]
		}
		t.Log(n, k, x)
	}
}
