package valuegen

import (
	"math/big"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/decimal256"
)

func (g Gen) times(n int) (arrow.Array, []any) {
	zone := []string{"", "UTC", "Europe/Berlin", "+05:30", "No/Where"}[g.IntN(5)]
	unit := arrow.TimeUnit(g.IntN(4))
	types := []arrow.DataType{arrow.FixedWidthTypes.Date32, arrow.FixedWidthTypes.Date64, &arrow.TimestampType{Unit: unit, TimeZone: zone}, &arrow.TimestampType{Unit: unit}}
	return g.build(types[g.IntN(len(types))], n, func(b array.Builder) any {
		v := g.integer()
		switch b := b.(type) {
		case *array.Date32Builder:
			b.Append(arrow.Date32(v))
			return moment{time.Unix(0, 0).UTC().AddDate(0, 0, int(int32(v)))}
		case *array.Date64Builder:
			b.Append(arrow.Date64(v))
			return moment{time.UnixMilli(v)}
		default:
			b.(*array.TimestampBuilder).Append(arrow.Timestamp(v))
			switch unit {
			case arrow.Second:
				if v > 1<<62 || v < -1<<62 {
					return untyped{}
				}
				return moment{time.Unix(v, 0)}
			case arrow.Millisecond:
				return moment{time.UnixMilli(v)}
			case arrow.Microsecond:
				return moment{time.UnixMicro(v)}
			default:
				return moment{time.Unix(0, v)}
			}
		}
	})
}

func (g Gen) spans(n int) (arrow.Array, []any) {
	types := []arrow.DataType{
		arrow.FixedWidthTypes.Time32s, arrow.FixedWidthTypes.Time32ms, arrow.FixedWidthTypes.Time64us, arrow.FixedWidthTypes.Time64ns,
		arrow.FixedWidthTypes.Duration_s, arrow.FixedWidthTypes.Duration_ms, arrow.FixedWidthTypes.Duration_us, arrow.FixedWidthTypes.Duration_ns,
		arrow.FixedWidthTypes.MonthInterval, arrow.FixedWidthTypes.DayTimeInterval, arrow.FixedWidthTypes.MonthDayNanoInterval,
	}
	t := types[g.IntN(len(types))]
	nanos := func(v int64) any {
		unit := t.(interface{ TimeUnit() arrow.TimeUnit }).TimeUnit()
		return ticks{new(big.Int).Mul(big.NewInt(v), big.NewInt(int64(unit.Multiplier())))}
	}
	return g.build(t, n, func(b array.Builder) any {
		v := g.integer()
		switch b := b.(type) {
		case *array.Time32Builder:
			b.Append(arrow.Time32(v))
			return nanos(int64(int32(v)))
		case *array.Time64Builder:
			b.Append(arrow.Time64(v))
			return nanos(v)
		case *array.DurationBuilder:
			b.Append(arrow.Duration(v))
			return nanos(v)
		case *array.MonthIntervalBuilder:
			b.Append(arrow.MonthInterval(v))
		case *array.DayTimeIntervalBuilder:
			b.Append(arrow.DayTimeInterval{Days: int32(v) | 1, Milliseconds: 7})
		default:
			b.(*array.MonthDayNanoIntervalBuilder).Append(arrow.MonthDayNanoInterval{Months: 1, Days: 2, Nanoseconds: v})
		}
		return untyped{}
	})
}

func (g Gen) decimals(n int) (arrow.Array, []any) {
	scale := int32(g.IntN(40) - 4)
	wide := g.IntN(2) == 0
	var t arrow.DataType = &arrow.Decimal128Type{Precision: 38, Scale: scale}
	if wide {
		t = &arrow.Decimal256Type{Precision: 76, Scale: scale}
	}
	return g.build(t, n, func(b array.Builder) any {
		c := big.NewInt(g.integer())
		if g.IntN(3) == 0 {
			c.Mul(c, big.NewInt(g.integer()%1e9))
		}
		if g.IntN(3) == 0 && scale > 0 {
			c.Mul(big.NewInt(int64(g.IntN(1000))), powerOfTen(scale)) // whole
		}
		if wide {
			b.(*array.Decimal256Builder).Append(decimal256.FromBigInt(c))
		} else {
			if c.CmpAbs(powerOfTen(38)) >= 0 {
				c.SetInt64(1)
			}
			b.(*array.Decimal128Builder).Append(decimal128.FromBigInt(c))
		}
		r := new(big.Rat).SetInt(c)
		if scale > 0 {
			r.Quo(r, new(big.Rat).SetInt(powerOfTen(scale)))
		} else {
			r.Mul(r, new(big.Rat).SetInt(powerOfTen(-scale)))
		}
		return number{r}
	})
}
