// Package bind makes Arrow parameters of Go values.
//
// # Files
//
//   - values.go: the parameters of one execution, and the record batch made of them
//   - clock.go: times as dates and times of day
//   - rows.go: structs as record batches
//   - decimal.go: their columns of Decimals
//   - value.go, list.go, embedded.go: which Go value is sent as which Arrow type
package bind

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/rowscan"
)

// Values are the parameters of one execution, by position or by name. They share no memory with
// the values that they were made of, and do not change.
type Values []Value

// Of reads args: it calls the Value methods of driver.Valuer and copies what could
// change. All that cannot be sent is reported, each by its position from 1.
func Of(args []any) (Values, error) {
	values := make(Values, len(args))
	var faults []error
	for i, arg := range args {
		v, err := ValueOf(arg)
		if err != nil {
			faults = append(faults, fmt.Errorf("parameter %d: %w", i+1, err))
		}
		values[i] = v
	}
	if len(faults) > 0 {
		return nil, errjoin.Join(faults...)
	}
	return values, nil
}

// Read is args with each that can be sent read, as Of does it: their Value methods are
// not called again. The others are left to the call that tells of them.
func Read(args []any) []any {
	read := slices.Clone(args)
	for i, arg := range args {
		if v, err := ValueOf(arg); err == nil {
			read[i] = v
		}
	}
	return read
}

// Batch is a batch of one row. schema is what the server has told of the parameters, or
// nil. The caller must Release it.
//
// A time is sent in microseconds, which is what most servers keep, and cut off to them;
// only where the server has told nanoseconds is it sent in those: see fitted.
//
// Named parameters go in the server's order, under the names that it has told, without the mark of DataFusion's servers ($id).
func (v Values) Batch(schema *arrow.Schema) (arrow.RecordBatch, error) {
	v, parameters, err := v.matched(schema)
	if err != nil {
		return nil, err
	}
	fields := make([]arrow.Field, len(v))
	v = slices.Clone(v)
	for i, value := range v {
		t := value.arrowType()
		if parameter, isTold := parameters.at(i); isTold {
			told := parameter.Type
			if isOfClock(told) {
				v[i] = value.asClock()
			}
			if isTimeOfDay(told) {
				v[i] = v[i].asTimeOfDay()
			}
			t = fitted(v[i].arrowType(), told, value.hasNanoseconds())
			if number, its, ok := value.asNumber(parameter); ok {
				v[i], t = number, its
			}
		}
		fields[i] = arrow.Field{Name: cmp.Or(value.name, strconv.Itoa(i+1)), Type: t, Nullable: true}
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	defer b.Release()
	for i, value := range v {
		err := error(nil)
		if d, isDecimal := value.v.(rowscan.Decimal); isDecimal && arrow.IsDecimal(fields[i].Type.ID()) {
			err = appendDecimal(b.Field(i), d)
		} else {
			err = value.AppendTo(b.Field(i))
		}
		if err != nil {
			return nil, fmt.Errorf("parameter %d: %w", i+1, err)
		}
	}
	return b.NewRecordBatch(), nil
}

// FollowTypes reports whether the form in which some of them are sent depends on what the server has told, so that rows would
// be lacking if that were not true any more: see fitted. A number that goes to what has become a text is one (asNumber).
func (v Values) FollowTypes() bool {
	return slices.ContainsFunc(v, func(value Value) bool { return followsType(value.arrowType()) })
}

func followsType(own arrow.DataType) bool {
	if list, ok := own.(*arrow.ListType); ok {
		return followsType(list.Elem())
	}
	return own.ID() == arrow.TIMESTAMP || own.ID() == arrow.DURATION
}

// matched is v as the server's names of the parameters order it, with what it has told of each. Where it has told no
// such names, which parameter is meant is not known.
func (v Values) matched(schema *arrow.Schema) (Values, toldParameters, error) {
	named := map[string]Value{}
	for _, value := range v {
		if value.name != "" {
			named[value.name] = value
		}
	}
	switch {
	case len(named) == 0:
		return v, byPosition(schema), nil
	case len(named) < len(v):
		return nil, toldParameters{}, errors.New("named parameters are given twice, or beside others by position")
	case schema == nil || schema.NumFields() == 0:
		return nil, toldParameters{}, errors.New("the server does not tell the names of the parameters: give them by position")
	}
	ordered, unused := make(Values, schema.NumFields()), maps.Clone(named)
	var faults []error
	for i, field := range schema.Fields() {
		name := field.Name
		if _, given := named[name]; !given {
			name = strings.TrimPrefix(name, parameterMark)
		}
		value, given := named[name]
		if !given {
			faults = append(faults, fmt.Errorf("parameter %q of the statement is not given", field.Name))
		}
		delete(unused, name)
		ordered[i] = value
	}
	for _, name := range slices.Sorted(maps.Keys(unused)) {
		faults = append(faults, fmt.Errorf("the statement has no parameter %q", name))
	}
	return ordered, toldParameters{schema: schema}, errjoin.Join(faults...)
}

// parameterMark is in front of the names and numbers of parameters that DataFusion's servers tell.
const parameterMark = "$"

// toldParameters is what the server has told of the parameters, by their positions. The zero value is nothing.
type toldParameters struct {
	schema *arrow.Schema
	order  []int // the field of each; nil: they stand in their order
}

// at is what was told of the parameter of a position, from 0.
func (t toldParameters) at(position int) (field arrow.Field, told bool) {
	if t.schema == nil || position >= t.schema.NumFields() {
		return arrow.Field{}, false
	}
	if t.order != nil {
		position = t.order[position]
	}
	return t.schema.Field(position), true
}

// byPosition finds out which field is whose.
//
// INVARIANT: a value is sent in the form of its own parameter. Where the server tells them by their numbers ($2), these are
// their positions, and not the order in which they stand: it is none on InfluxDB 3, another in each answer, and that of
// texts ($1, $10, $2) on other servers with DataFusion.
func byPosition(schema *arrow.Schema) toldParameters {
	told := toldParameters{schema: schema}
	if schema == nil {
		return told
	}
	n := schema.NumFields()
	var order []int // made for the first that is out of its place
	for i := range n {
		number, is := positionIn(schema.Field(i).Name)
		if !is || number < 1 || number > n {
			return told
		}
		if number == i+1 && order == nil {
			continue
		}
		if order == nil {
			order = make([]int, n)
			for j := range order {
				order[j] = -1
			}
			for j := range i {
				order[j] = j
			}
		}
		if order[number-1] >= 0 {
			return told
		}
		order[number-1] = i
	}
	told.order = order
	return told
}

// positionIn is the number that a parameter is called by.
func positionIn(name string) (number int, is bool) {
	name = strings.TrimPrefix(name, parameterMark)
	if name == "" || name[0] < '0' || name[0] > '9' { // it would cost an error
		return 0, false
	}
	number, err := strconv.Atoi(name)
	return number, err == nil
}

// hasNanoseconds reports whether it is a time which microseconds do not tell exactly, or a
// list with one.
func (v Value) hasNanoseconds() bool {
	switch v := v.v.(type) {
	case time.Time:
		return v.Nanosecond()%1000 != 0
	case list:
		return slices.ContainsFunc(v.items, Value.hasNanoseconds)
	}
	return false
}

// fitted is the type in which a value of type own is sent where the server's is told. A
// time is in UTC where the server knows of zones, and else the clock of UTC, so that it
// is read as what it was: the server would turn it into that of its session. A date or a time
// of day it is as the server's: others would compare a column of them with the whole time. It
// has nanoseconds where it needs them and the server takes them.
func fitted(own, told arrow.DataType, nanoseconds bool) arrow.DataType {
	switch own := own.(type) {
	case *arrow.TimestampType:
		switch {
		case !isOfClock(told):
		case arrow.IsNested(told.ID()): // a list is wanted
			return &arrow.TimestampType{Unit: own.Unit}
		default:
			return told
		}
		if told, ok := told.(*arrow.TimestampType); ok {
			t := &arrow.TimestampType{Unit: own.Unit}
			if told.Unit == arrow.Nanosecond && nanoseconds {
				t.Unit = arrow.Nanosecond
			}
			if told.TimeZone != "" {
				t.TimeZone = own.TimeZone
			}
			return t
		}
	case *arrow.ListType:
		if told, ok := told.(arrow.ListLikeType); ok {
			return arrow.ListOf(fitted(own.Elem(), told.Elem(), nanoseconds))
		}
	}
	return own
}
