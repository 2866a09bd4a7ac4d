//go:build duckdb_arrow

package duckdb

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
)

// numbered makes n rows, numbered from 0, that carry a mark.
func numbered(n int, mark string) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{
		{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "mark", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "half", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
		{Name: "even", Type: arrow.FixedWidthTypes.Boolean, Nullable: true},
		{Name: "seen", Type: &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}, Nullable: true},
	}, nil))
	defer b.Release()
	for i := range n {
		b.Field(0).(*array.Int64Builder).Append(int64(i))
		b.Field(1).(*array.StringBuilder).Append(fmt.Sprintf("%s, and long enough not to be inlined, %d", mark, i))
		b.Field(2).(*array.Float64Builder).Append(float64(i) / 2)
		b.Field(3).(*array.BooleanBuilder).Append(i%2 == 0)
		if i == 0 {
			b.Field(4).AppendNull()
		} else {
			b.Field(4).(*array.TimestampBuilder).Append(arrow.Timestamp(i))
		}
	}
	return b.NewRecordBatch()
}

func TestALiveViewShowsTheMomentInWhichItIsRead(t *testing.T) {
	e := newEngine(t, Config{})
	var n atomic.Int64
	require.NoError(t, e.Live(t.Context(), "sys.live", func() (arrow.RecordBatch, error) { return numbered(int(n.Load()), "row"), nil }))
	s := openSession(t, e)
	s.mustUpdate(t, "PREPARE again AS SELECT count(*) FROM sys.live")
	for _, rows := range []int64{0, 1, 2048, 2049, 10_000} {
		n.Store(rows)
		want := fmt.Sprint(rows)
		require.Equal(t, [][]string{{want}}, s.mustQuery(t, "SELECT count(*) FROM sys.live"))
		require.Equal(t, [][]string{{want}}, s.mustQuery(t, "EXECUTE again"))
	}
	require.Equal(t, [][]string{{"3", "row, and long enough not to be inlined, 3", "1.5", "false", "3"}},
		s.mustQuery(t, "SELECT n, mark, half, even, epoch_us(seen) FROM sys.live WHERE n = 3"))
	require.Equal(t, [][]string{{"9999", "1"}}, s.mustQuery(t, "SELECT count(seen), count(*) FILTER (seen IS NULL) FROM sys.live"))
	s.mustUpdate(t, "CREATE TABLE names AS SELECT i, 'name ' || i AS name FROM range(3) r(i)")
	require.Equal(t, [][]string{{"name 0", "true"}, {"name 2", "true"}},
		s.mustQuery(t, "SELECT name, even FROM sys.live JOIN names ON i = n WHERE even ORDER BY n"))
	require.Equal(t, [][]string{{"5000", "24995000"}}, s.mustQuery(t, "SELECT count(*), sum(a.n)::BIGINT FROM sys.live a JOIN sys.live b USING (n) WHERE a.even"))
}

func TestALiveViewIsFoundInTheCatalogAndReadByManyAtOnce(t *testing.T) {
	e := newEngine(t, Config{})
	require.NoError(t, e.Live(t.Context(), "live", func() (arrow.RecordBatch, error) { return numbered(3000, "row"), nil }))
	tables, err := openSession(t, e).Tables(t.Context())
	require.NoError(t, err)
	require.Len(t, tables, 1)
	require.Equal(t, []string{"live", "VIEW"}, []string{tables[0].Name, tables[0].Type})
	require.Equal(t, 5, tables[0].Columns.NumFields())
	var wg sync.WaitGroup
	for range 4 {
		s := openSession(t, e)
		wg.Go(func() {
			for range 25 {
				rows, err := s.query(t.Context(), "SELECT sum(n)::BIGINT, count(DISTINCT mark) FROM live", nil)
				if err != nil || rows[0][0] != "4498500" || rows[0][1] != "3000" {
					t.Errorf("%v, %v", rows, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestWhatALiveViewCannotShowFailsTheStatementAlone(t *testing.T) {
	e := newEngine(t, Config{})
	var rows func() (arrow.RecordBatch, error)
	three := func() (arrow.RecordBatch, error) { return numbered(3, "row"), nil }
	rows = three
	require.NoError(t, e.Live(t.Context(), "live", func() (arrow.RecordBatch, error) { return rows() }))
	s := openSession(t, e)
	for want, wrong := range map[string]func() (arrow.RecordBatch, error){
		"not today": func() (arrow.RecordBatch, error) { return nil, errors.New("not today") },
		"columns are not those": func() (arrow.RecordBatch, error) {
			all := numbered(1, "row")
			defer all.Release()
			return array.NewRecordBatch(arrow.NewSchema(all.Schema().Fields()[:1], nil), all.Columns()[:1], 1), nil
		},
	} {
		rows = wrong
		_, err := s.query(t.Context(), "FROM live", nil)
		require.ErrorContains(t, err, want)
		rows = three
		require.Equal(t, [][]string{{"3"}}, s.mustQuery(t, "SELECT count(*) FROM live"))
	}
	require.Error(t, e.Live(t.Context(), "live", three), "the name is taken")
	require.ErrorContains(t, e.Live(t.Context(), "other", func() (arrow.RecordBatch, error) { return nil, errors.New("never") }), "never")
	require.ErrorContains(t, newEngine(t, Config{PerSession: true}).Live(t.Context(), "live", three), "PerSession")
	require.Equal(t, 1, strings.Count(fmt.Sprint(s.mustQuery(t, "SELECT view_name FROM duckdb_views() WHERE NOT internal")), "live"))
}
