package valuegen

import (
	"encoding/binary"
	"math"
	"math/big"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/float16"
)

// integer leans to the edges of types.
func (g Gen) integer() int64 {
	switch g.IntN(4) {
	case 0:
		return int64(g.IntN(300) - 150)
	case 1:
		return int64(1)<<g.IntN(63) + int64(g.IntN(3)-1)
	case 2:
		return -(int64(1) << g.IntN(63)) - int64(g.IntN(2))
	default:
		return int64(g.Uint64())
	}
}

func integral(v int64) any { return number{new(big.Rat).SetInt64(v)} }

func (g Gen) integers(n int) (arrow.Array, []any) {
	types := []arrow.DataType{
		arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64,
		arrow.PrimitiveTypes.Uint8, arrow.PrimitiveTypes.Uint16, arrow.PrimitiveTypes.Uint32, arrow.PrimitiveTypes.Uint64,
	}
	return g.build(types[g.IntN(len(types))], n, func(b array.Builder) any {
		v := g.integer()
		switch b := b.(type) {
		case *array.Int8Builder:
			b.Append(int8(v))
			return integral(int64(int8(v)))
		case *array.Int16Builder:
			b.Append(int16(v))
			return integral(int64(int16(v)))
		case *array.Int32Builder:
			b.Append(int32(v))
			return integral(int64(int32(v)))
		case *array.Int64Builder:
			b.Append(v)
			return integral(v)
		case *array.Uint8Builder:
			b.Append(uint8(v))
			return integral(int64(uint8(v)))
		case *array.Uint16Builder:
			b.Append(uint16(v))
			return integral(int64(uint16(v)))
		case *array.Uint32Builder:
			b.Append(uint32(v))
			return integral(int64(uint32(v)))
		default:
			b.(*array.Uint64Builder).Append(uint64(v))
			return number{new(big.Rat).SetUint64(uint64(v))}
		}
	})
}

func (g Gen) float() float64 {
	switch g.IntN(6) {
	case 0:
		return math.Float64frombits(g.Uint64())
	case 1:
		return []float64{0, math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat64, math.SmallestNonzeroFloat64}[g.IntN(6)]
	case 2:
		return float64(g.integer())
	case 3:
		return float64(math.Float32frombits(g.Uint32()))
	default:
		return float64(g.IntN(20000)-10000) / 100
	}
}

func (g Gen) floats(n int) (arrow.Array, []any) {
	types := []arrow.DataType{arrow.FixedWidthTypes.Float16, arrow.PrimitiveTypes.Float32, arrow.PrimitiveTypes.Float64}
	return g.build(types[g.IntN(len(types))], n, func(b array.Builder) any {
		f := g.float()
		switch b := b.(type) {
		case *array.Float16Builder:
			half := uint16(g.Uint64())
			b.Append(float16.FromBits(half))
			f = halfFloat(half)
		case *array.Float32Builder:
			b.Append(float32(f))
			f = float64(float32(f))
		default:
			b.(*array.Float64Builder).Append(f)
		}
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return notANumber(f)
		}
		return number{new(big.Rat).SetFloat64(f)}
	})
}

// halfFloat is the number that IEEE 754's half float of these bits stands for.
func halfFloat(half uint16) float64 {
	exponent, fraction := int(half>>10&0x1f), float64(half&0x3ff)
	f := math.Ldexp(1024+fraction, exponent-25)
	switch {
	case exponent == 0:
		f = math.Ldexp(fraction, -24)
	case exponent == 0x1f && fraction == 0:
		f = math.Inf(1)
	case exponent == 0x1f:
		f = math.NaN()
	}
	if half>>15 == 1 {
		return -f
	}
	return f
}

func (g Gen) fixed(n int) (arrow.Array, []any) {
	if g.IntN(4) == 0 && !g.whole {
		return array.NewNull(n), make([]any, n)
	}
	return g.build(arrow.FixedWidthTypes.Boolean, n, func(b array.Builder) any {
		v := g.IntN(2) == 0
		b.(*array.BooleanBuilder).Append(v)
		return v
	})
}

func (g Gen) text() string {
	return []string{"", "a", "é", "12.50", "\x00", "null", `"quoted"`, "a longer text that no view holds inline", "key", "7"}[g.IntN(10)]
}

func (g Gen) texts(n int) (arrow.Array, []any) {
	types := []arrow.DataType{arrow.BinaryTypes.String, arrow.BinaryTypes.LargeString, arrow.BinaryTypes.StringView}
	return g.build(types[g.IntN(len(types))], n, func(b array.Builder) any {
		s := g.text()
		b.(interface{ Append(string) }).Append(s)
		return text(s)
	})
}

func (g Gen) blobs(n int) (arrow.Array, []any) {
	types := []arrow.DataType{arrow.BinaryTypes.Binary, arrow.BinaryTypes.LargeBinary, arrow.BinaryTypes.BinaryView, &arrow.FixedSizeBinaryType{ByteWidth: 4}}
	return g.build(types[g.IntN(len(types))], n, func(b array.Builder) any {
		s := []string{"", "\xff\xfe", "abcd", "\x00\x01\x02\x03", "a longer blob that no view holds inline"}[g.IntN(5)]
		if _, fixed := b.(*array.FixedSizeBinaryBuilder); fixed {
			s = string(binary.BigEndian.AppendUint32(nil, g.Uint32()))
		}
		b.(interface{ Append([]byte) }).Append([]byte(s))
		return blob(s)
	})
}
