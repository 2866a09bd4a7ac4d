package export

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/big"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/float16"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	pqschema "github.com/apache/arrow-go/v18/parquet/schema"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/internal/tools/valuegen"
)

// What the statistics of a file say is so of each of its values: readers pass over row groups by them.
func TestNoValueIsOutsideOfItsStatistics(t *testing.T) {
	told := map[string]int{}
	for seed := range uint64(1500) {
		col, _ := valuegen.New(seed).Column(12, 2)
		var out bytes.Buffer
		w, err := NewWriter(&out, batchOfColumn(col, "v").Schema(), Parquet)
		if err != nil {
			continue
		}
		failed := false
		for from := int64(0); from < int64(col.Len()) && !failed; from += 5 {
			failed = w.Write(batchOfColumn(array.NewSlice(col, from, min(from+5, int64(col.Len()))), "v")) != nil
		}
		if failed || w.Close() != nil {
			continue
		}
		checkStatistics(t, out.Bytes(), fmt.Sprint("seed ", seed, ", ", col.DataType()), told)
		if t.Failed() {
			return
		}
	}
	t.Log(told)
}

func checkStatistics(t *testing.T, of []byte, what string, told map[string]int) {
	r, err := file.NewParquetReader(bytes.NewReader(of))
	require.NoError(t, err)
	defer func() { _ = r.Close() }()
	for g := range r.NumRowGroups() {
		for c := range r.MetaData().Schema.NumColumns() {
			chunk, err := r.MetaData().RowGroup(g).ColumnChunk(c)
			require.NoError(t, err)
			stats, err := chunk.Statistics()
			require.NoError(t, err)
			if stats == nil {
				continue
			}
			descr := r.MetaData().Schema.Column(c)
			reader, err := r.RowGroup(g).Column(c)
			require.NoError(t, err)
			nulls := checkColumn(t, reader, stats, descr, what)
			if stats.HasNullCount() && descr.MaxRepetitionLevel() == 0 {
				require.EqualValues(t, nulls, stats.NullCount(), "%s: NULLs of %s", what, descr.Path())
			}
			told[descr.PhysicalType().String()]++
		}
	}
}

func checkColumn(t *testing.T, reader file.ColumnChunkReader, stats metadata.TypedStatistics, descr *pqschema.Column, what string) (nulls int) {
	def, rep := make([]int16, 4096), make([]int16, 4096)
	unsigned := descr.SortOrder() == pqschema.SortUNSIGNED
	check := func(v, low, high any, below func() bool, above func() bool) {
		if stats.HasMinMax() && (below() || above()) {
			t.Errorf("%s: %v of %s is not from %v to %v", what, v, descr.Path(), low, high)
		}
	}
	var total int64
	read := 0
	switch r := reader.(type) {
	case *file.Int32ColumnChunkReader:
		v, s := make([]int32, 4096), stats.(*metadata.Int32Statistics)
		total, read, _ = r.ReadBatch(4096, v, def, rep)
		for _, v := range v[:read] {
			less := func(a, b int32) bool { return unsigned && uint32(a) < uint32(b) || !unsigned && a < b }
			check(v, s.Min(), s.Max(), func() bool { return less(v, s.Min()) }, func() bool { return less(s.Max(), v) })
		}
	case *file.Int64ColumnChunkReader:
		v, s := make([]int64, 4096), stats.(*metadata.Int64Statistics)
		total, read, _ = r.ReadBatch(4096, v, def, rep)
		for _, v := range v[:read] {
			less := func(a, b int64) bool { return unsigned && uint64(a) < uint64(b) || !unsigned && a < b }
			check(v, s.Min(), s.Max(), func() bool { return less(v, s.Min()) }, func() bool { return less(s.Max(), v) })
		}
	case *file.Float32ColumnChunkReader:
		v, s := make([]float32, 4096), stats.(*metadata.Float32Statistics)
		total, read, _ = r.ReadBatch(4096, v, def, rep)
		for _, v := range v[:read] {
			check(v, s.Min(), s.Max(), func() bool { return v < s.Min() }, func() bool { return v > s.Max() })
		}
	case *file.Float64ColumnChunkReader:
		v, s := make([]float64, 4096), stats.(*metadata.Float64Statistics)
		total, read, _ = r.ReadBatch(4096, v, def, rep)
		for _, v := range v[:read] {
			check(v, s.Min(), s.Max(), func() bool { return v < s.Min() }, func() bool { return v > s.Max() })
		}
	case *file.BooleanColumnChunkReader:
		v, s := make([]bool, 4096), stats.(*metadata.BooleanStatistics)
		total, read, _ = r.ReadBatch(4096, v, def, rep)
		for _, v := range v[:read] {
			check(v, s.Min(), s.Max(), func() bool { return !v && s.Min() }, func() bool { return v && !s.Max() })
		}
	case *file.ByteArrayColumnChunkReader:
		v, s := make([]parquet.ByteArray, 4096), stats.(*metadata.ByteArrayStatistics)
		total, read, _ = r.ReadBatch(4096, v, def, rep)
		for _, v := range v[:read] {
			check(v, s.Min(), s.Max(), func() bool { return bytes.Compare(v, s.Min()) < 0 }, func() bool { return bytes.Compare(v, s.Max()) > 0 })
		}
	case *file.FixedLenByteArrayColumnChunkReader:
		v := make([]parquet.FixedLenByteArray, 4096)
		total, read, _ = r.ReadBatch(4096, v, def, rep)
		var low, high []byte
		if s, ok := stats.(*metadata.FixedLenByteArrayStatistics); ok {
			low, high = s.Min(), s.Max()
		} else if s, ok := stats.(*metadata.Float16Statistics); ok {
			low, high = s.Min(), s.Max()
		}
		for _, v := range v[:read] {
			if stats.HasMinMax() {
				check(v, low, high, func() bool { return fixedLess(descr, v, low) }, func() bool { return fixedLess(descr, high, v) })
			}
		}
	default:
		return 0
	}
	for _, d := range def[:total] {
		if descr.MaxDefinitionLevel() > 0 && d < descr.MaxDefinitionLevel() {
			nulls++
		}
	}
	return nulls
}

func fixedLess(descr *pqschema.Column, a, b []byte) bool {
	switch descr.LogicalType().(type) {
	case pqschema.DecimalLogicalType:
		return signed(a).Cmp(signed(b)) < 0
	case pqschema.Float16LogicalType:
		x, y := float16.FromLEBytes(a).Float32(), float16.FromLEBytes(b).Float32()
		return !math.IsNaN(float64(x)) && cmp.Less(x, y)
	default:
		return bytes.Compare(a, b) < 0
	}
}

func signed(b []byte) *big.Int {
	v := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0]&0x80 != 0 {
		v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return v
}
