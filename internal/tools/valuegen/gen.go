// Package valuegen makes Arrow columns of every type at random, nested and
// encoded in every way, together with the values that they stand for, so that
// tests can tell whether a reader gets those and no others.
package valuegen

import (
	"math/big"
	"math/rand/v2"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// A column under test comes with the values that it stands for, made beside it
// and not read from it: nil, bool, number, notANumber, text, blob, moment,
// ticks, untyped, uuid, sequence, members or pairs.
type (
	number     struct{ *big.Rat }
	notANumber float64
	text       string
	blob       string
	moment     struct{ time.Time }
	ticks      struct{ *big.Int } // nanoseconds
	untyped    struct{}           // an interval
	uuid       string             // its bytes
	sequence   []any
	members    []any // of a struct, called a, b, c …
	pairs      [][2]any
)

// Rat is the number that a value is, or nil.
func Rat(want any) *big.Rat {
	if n, ok := want.(number); ok {
		return n.Rat
	}
	return nil
}

// Gen makes columns at random.
type Gen struct {
	*rand.Rand
	whole bool // no value is marked NULL, as Arrow demands of keys
}

// isNull decides whether a value is marked NULL.
func (g Gen) isNull() bool { return g.IntN(5) == 0 && !g.whole }

// New is a Gen whose columns depend on the seed alone.
func New(seed uint64) Gen { return Gen{Rand: rand.New(rand.NewPCG(seed, 0))} }

// Column is at most n values of a random type, nested at most so deep.
func (g Gen) Column(n, depth int) (arrow.Array, []any) {
	const scalars, encodings, nested = 11, 5, 4
	kinds := scalars
	if depth > 0 {
		kinds += encodings + nested
	}
	col, want := g.columnOf(g.IntN(kinds), n, depth)
	if n > 1 && g.IntN(4) == 0 { // a slice begins elsewhere in all of its buffers
		from := g.IntN(n)
		return array.NewSlice(col, int64(from), int64(n)), want[from:]
	}
	return col, want
}

func (g Gen) columnOf(kind, n, depth int) (arrow.Array, []any) {
	switch kind {
	case 0:
		return g.integers(n)
	case 1:
		return g.floats(n)
	case 2:
		return g.fixed(n)
	case 3, 4:
		return g.texts(n)
	case 5:
		return g.blobs(n)
	case 6, 7:
		return g.times(n)
	case 8:
		return g.spans(n)
	case 9, 10:
		return g.decimals(n)
	case 11:
		return g.dictionary(n, depth-1)
	case 12:
		return g.runs(n, depth-1)
	case 13, 14:
		return g.union(n, depth-1)
	case 15:
		return g.extension(n, depth-1)
	case 16, 17:
		return g.list(n, depth-1)
	case 18:
		return g.structs(n, depth-1)
	default:
		return g.Maps(n, depth-1)
	}
}

// Exactly is a column of at least n values, cut to n.
func (g Gen) Exactly(n, depth int) (arrow.Array, []any) {
	for {
		if col, want := g.Column(n+g.IntN(3), depth); col.Len() >= n {
			return array.NewSlice(col, 0, int64(n)), want[:n]
		}
	}
}

// build appends n values, some of them NULL.
func (g Gen) build(t arrow.DataType, n int, one func(b array.Builder) any) (arrow.Array, []any) {
	b := array.NewBuilder(memory.DefaultAllocator, t)
	defer b.Release()
	want := make([]any, n)
	for i := range want {
		if g.isNull() {
			b.AppendNull()
		} else {
			want[i] = one(b)
		}
	}
	return b.NewArray(), want
}
