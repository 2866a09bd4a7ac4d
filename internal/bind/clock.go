package bind

import (
	"errors"
	"math"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// isOfClock reports whether a type is a date or a time of day, or a list of them.
func isOfClock(t arrow.DataType) bool {
	switch t := t.(type) {
	case *arrow.Date32Type, *arrow.Date64Type:
		return true
	case arrow.ListLikeType:
		return isOfClock(t.Elem())
	}
	return isTimeOfDay(t)
}

func isTimeOfDay(t arrow.DataType) bool {
	return t.ID() == arrow.TIME32 || t.ID() == arrow.TIME64
}

// asClock is a value whose times tell in UTC what they tell in their own zone: their date
// is the one that the program sees, wherever it and the server are.
func (v Value) asClock() Value {
	switch own := v.v.(type) {
	case time.Time:
		v.v = time.Date(own.Year(), own.Month(), own.Day(), own.Hour(), own.Minute(), own.Second(), own.Nanosecond(), time.UTC)
	case list:
		items := make([]Value, len(own.items))
		for i, item := range own.items {
			items[i] = item.asClock()
		}
		own.items = items
		v.v = own
	}
	return v
}

// asTimeOfDay is a duration as the time of day that such a one is read from.
func (v Value) asTimeOfDay() Value {
	if own, ok := v.v.(time.Duration); ok && own >= 0 && own < day {
		v.v = time.Unix(0, int64(own)).UTC()
	}
	return v
}

const day = 24 * time.Hour

var errTimeRange = errors.New("the time is out of the range of its unit")

// appendTime appends a time to a builder of timestamps, or what its clock tells in UTC to one
// of dates or times of day, cut off to their unit.
func appendTime(to array.Builder, at time.Time) error {
	const seconds = int64(day / time.Second)
	days := at.Unix() / seconds
	if at.Unix()%seconds < 0 {
		days--
	}
	since := time.Duration(at.Unix()-days*seconds)*time.Second + time.Duration(at.Nanosecond())
	switch b := to.(type) {
	case *array.TimestampBuilder:
		value, err := arrow.TimestampFromTime(at, b.Type().(*arrow.TimestampType).Unit)
		if err != nil {
			return errTimeRange
		}
		b.Append(value)
	case *array.Date32Builder:
		if days < math.MinInt32 || days > math.MaxInt32 {
			return errTimeRange
		}
		b.Append(arrow.Date32(days))
	case *array.Date64Builder:
		if days < math.MinInt32 || days > math.MaxInt32 {
			return errTimeRange
		}
		b.Append(arrow.Date64(days * day.Milliseconds()))
	case *array.Time32Builder:
		b.Append(arrow.Time32(since / b.Type().(*arrow.Time32Type).Unit.Multiplier()))
	case *array.Time64Builder:
		b.Append(arrow.Time64(since / b.Type().(*arrow.Time64Type).Unit.Multiplier()))
	}
	return nil
}
