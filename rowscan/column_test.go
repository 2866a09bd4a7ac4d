package rowscan

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
)

// randomTexts is a column of texts around the length up to which neighbours are copied
// together, some of them NULL, and what it holds: a slice of a longer one.
func randomTexts(rnd *rand.Rand, dt arrow.DataType, rows int) (col arrow.Array, want []any) {
	b := array.NewBuilder(memory.DefaultAllocator, dt)
	defer b.Release()
	before, behind := rnd.IntN(3), rnd.IntN(3)
	for i := range before + rows + behind {
		var value any
		if rnd.IntN(5) > 0 {
			length := rnd.IntN(40)
			if rnd.IntN(6) == 0 {
				length = sharedTexts - 3 + rnd.IntN(6)
			}
			value = strings.Repeat(fmt.Sprint(i, "·"), length/3+1)[:length]
			b.(interface{ Append(string) }).Append(value.(string))
		} else {
			b.AppendNull()
		}
		want = append(want, value)
	}
	all := b.NewArray()
	defer all.Release()
	return array.NewSlice(all, int64(before), int64(before+rows)), want[before : before+rows]
}

// TestTextsOfNeighboursAreThoseOfTheirRows reads texts in order, in any other, and after the
// memory of their column is another's.
func TestTextsOfNeighboursAreThoseOfTheirRows(t *testing.T) {
	for _, dt := range []arrow.DataType{arrow.BinaryTypes.String, arrow.BinaryTypes.LargeString, arrow.BinaryTypes.StringView} {
		for seed := range uint64(200) {
			rnd := rand.New(rand.NewPCG(seed, 0))
			col, want := randomTexts(rnd, dt, rnd.IntN(60))
			rows := rnd.Perm(len(want))
			if seed%2 == 0 {
				for i := range rows {
					rows[i] = i
				}
			}
			read, got := Column(col), make([]any, len(want))
			var direct string
			copied := directOf(&direct, col)
			for _, row := range rows {
				got[row] = read(row)
				require.Equal(t, want[row], Value(col, row))
				if copied != nil && copied(row) {
					require.Equal(t, want[row], direct)
				}
			}
			wipe(col.Data())
			require.Equal(t, len(want), len(got))
			for row := range want {
				require.Equal(t, want[row], got[row], "%s, seed %d, row %d of %d", dt, seed, row, len(want))
			}
		}
	}
}

// TestATextKeepsFewNeighboursAlive: neighbours are copied together up to 256 bytes.
func TestATextKeepsFewNeighboursAlive(t *testing.T) {
	b := array.NewStringBuilder(memory.DefaultAllocator)
	defer b.Release()
	for range 1000 {
		b.Append("sixteen letters ")
	}
	col := b.NewStringArray()
	defer col.Release()
	allocs := testing.AllocsPerRun(5, func() {
		read := textsOf(col)
		for row := range 1000 {
			_ = read(row)
		}
	})
	require.InDelta(t, 1000.0*16/sharedTexts, allocs, 7, "copies of 1,000 texts of 16 bytes")
}

// TestAnEmptyColumnMayHaveNoOffsets: Arrow allows it, and some writers make use of it.
func TestAnEmptyColumnMayHaveNoOffsets(t *testing.T) {
	for _, dt := range []arrow.DataType{arrow.BinaryTypes.String, arrow.BinaryTypes.LargeString} {
		data := array.NewData(dt, 0, []*memory.Buffer{nil, nil, nil}, nil, 0, 0)
		defer data.Release()
		require.NotPanics(t, func() { Column(array.MakeFromData(data)) })
	}
}

func TestTimesOfAColumnAreInItsZone(t *testing.T) {
	for _, unit := range arrow.TimeUnitValues {
		col := columnOf(t, &arrow.TimestampType{Unit: unit, TimeZone: "America/New_York"}, `["2026-07-01T12:00:00Z", null]`)
		read := Column(col)
		require.Equal(t, Value(col, 0), read(0))
		require.Equal(t, "America/New_York", read(0).(time.Time).Location().String())
		require.Nil(t, read(1))
	}
}
