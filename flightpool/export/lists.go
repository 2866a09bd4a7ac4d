package export

import (
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// isList reports whether a type has a range of items for each row.
func isList(id arrow.Type) bool {
	return id == arrow.LIST || id == arrow.LARGE_LIST || id == arrow.MAP || id == arrow.FIXED_SIZE_LIST
}

// withoutDeadItems is a column of lists, whose validity bits are valid, without the items of NULL
// lists. Arrow allows those, and lists of fixed size always have them, but its writer of Parquet
// writes no column with items between others that belong to no list. Hence lists of fixed size
// become lists.
//
// What is not changed is not copied: a column without such items keeps its buffers.
func withoutDeadItems(d arrow.ArrayData, valid *memory.Buffer) (arrow.ArrayData, error) {
	items := d.Children()[0]
	to, nulls := plainType(d.DataType(), true), array.UnknownNullCount
	if isEmpty(valid) {
		valid, nulls = nil, 0 // without bits, Arrow cannot count
	}
	live := liveItems(d, valid)
	if live.all && storageOf(d.DataType()).ID() != arrow.FIXED_SIZE_LIST {
		child, err := asWritten(items, nil)
		if err != nil {
			return nil, err
		}
		defer child.Release()
		return array.NewData(to, d.Len(), []*memory.Buffer{valid, d.Buffers()[1]}, []arrow.ArrayData{child}, nulls, d.Offset()), nil
	}
	picked, err := pickItems(items, live.runs)
	if err != nil {
		return nil, err
	}
	defer picked.Release()
	child, err := asWritten(picked, nil)
	if err != nil {
		return nil, err
	}
	defer child.Release()
	offsets, err := live.offsets(storageOf(to).ID() == arrow.LARGE_LIST)
	if err != nil {
		return nil, err
	}
	if !isEmpty(valid) {
		bits := make([]byte, bitutil.BytesForBits(int64(d.Len())))
		bitutil.CopyBitmap(valid.Bytes(), d.Offset(), d.Len(), bits, 0)
		valid = memory.NewBufferBytes(bits)
	}
	return array.NewData(to, d.Len(), []*memory.Buffer{valid, offsets}, []arrow.ArrayData{child}, nulls, 0), nil
}

// itemRuns are the items that belong to lists.
type itemRuns struct {
	runs [][2]int64 // from, and to which item, where no other lies between
	ends []int64    // of each list, counted in items that belong to one
	all  bool       // no NULL list has items
}

func liveItems(d arrow.ArrayData, valid *memory.Buffer) itemRuns {
	between := rangesOf(d)
	live := itemRuns{ends: make([]int64, d.Len()), all: true}
	end := int64(0)
	for i := range d.Len() {
		row := d.Offset() + i
		from, to := between(row)
		if null := !isEmpty(valid) && !bitutil.BitIsSet(valid.Bytes(), row); null {
			live.all = live.all && from == to
		} else if from < to {
			if n := len(live.runs); n > 0 && live.runs[n-1][1] == from {
				live.runs[n-1][1] = to
			} else {
				live.runs = append(live.runs, [2]int64{from, to})
			}
			end += to - from
		}
		live.ends[i] = end
	}
	return live
}

// rangesOf tells between which items a row of d's buffers lies.
func rangesOf(d arrow.ArrayData) func(row int) (from, to int64) {
	t := storageOf(d.DataType())
	if fixed, ok := t.(*arrow.FixedSizeListType); ok {
		n := int64(fixed.Len())
		return func(row int) (int64, int64) { return int64(row) * n, int64(row+1) * n }
	}
	if d.Len() == 0 { // there may be no buffer
		return nil
	}
	if t.ID() == arrow.LARGE_LIST {
		offsets := arrow.Int64Traits.CastFromBytes(d.Buffers()[1].Bytes())
		return func(row int) (int64, int64) { return offsets[row], offsets[row+1] }
	}
	offsets := arrow.Int32Traits.CastFromBytes(d.Buffers()[1].Bytes())
	return func(row int) (int64, int64) { return int64(offsets[row]), int64(offsets[row+1]) }
}

func (l itemRuns) offsets(large bool) (*memory.Buffer, error) {
	if n := len(l.ends); !large && n > 0 && l.ends[n-1] > math.MaxInt32 {
		return nil, fmt.Errorf("a batch has lists of %d items, of %d that can be written", l.ends[n-1], math.MaxInt32)
	}
	if large {
		return memory.NewBufferBytes(arrow.Int64Traits.CastToBytes(append([]int64{0}, l.ends...))), nil
	}
	offsets := make([]int32, 1, len(l.ends)+1)
	for _, end := range l.ends {
		offsets = append(offsets, int32(end))
	}
	return memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets)), nil
}

// pickItems has the items of runs one after the other. The caller releases it.
func pickItems(items arrow.ArrayData, runs [][2]int64) (arrow.ArrayData, error) {
	if len(runs) == 0 {
		return array.NewSliceData(items, 0, 0), nil
	}
	if len(runs) == 1 {
		return array.NewSliceData(items, runs[0][0], runs[0][1]), nil
	}
	whole := array.MakeFromData(items)
	defer whole.Release()
	slices := make([]arrow.Array, len(runs))
	for i, run := range runs {
		slices[i] = array.NewSlice(whole, run[0], run[1])
		defer slices[i].Release()
	}
	picked, err := array.Concatenate(slices, memory.DefaultAllocator)
	if err != nil {
		return nil, err
	}
	defer picked.Release()
	picked.Data().Retain()
	return picked.Data(), nil
}
