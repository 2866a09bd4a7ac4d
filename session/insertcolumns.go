package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/flightpool/flightpool/backend"
)

// requireStored has an INSERT refused, before it is executed, of whose parameters a server that stores them as they are
// (storesParams) would store something else, or elsewhere. It puts the columns that are named together by their names, to the letter, and
// converts values as Arrow's library for Rust does, which makes NULL of what does not fit. What of it can be seen is seen by what the server
// has told of the parameters: where each is one alone, the columns of the table. It counts its handles.
func (s *SessionHandle) requireStored(ctx context.Context, c *call, stmt backend.Prepared, rows arrow.RecordBatch) error {
	script := c.script.Statements[0]
	if rows == nil || script.InsertInto == "" {
		return nil
	}
	var why error
	switch {
	case script.ComputesRows:
		why = errComputedRows
	case isCounted(backend.TxID(handleOf(stmt))):
		in, err := s.placeOf(ctx, c)
		if err != nil {
			return err
		}
		why = storedElsewhere(script.InsertInto, in)
		if len(script.InsertColumns) > 0 {
			why = cmp.Or(why, storedOtherwise(script.InsertColumns, stmt.ParameterSchema(), rows))
		}
	}
	if why == nil {
		return nil
	}
	stores, err := s.storesParams(ctx)
	if err != nil || !stores {
		return err
	}
	s.stayed(c.insert)
	return &backend.Error{Stage: backend.StageArgument, Fault: backend.FaultUsage, Err: why} // the preparing was sent
}

// placeOf is the call's INSERT, with where the session is. beforeInsert does not read that for a connection that is closed next.
func (s *SessionHandle) placeOf(ctx context.Context, c *call) (*insertion, error) {
	if !s.closesNext() {
		return c.insert, nil
	}
	for _, r := range namespaceQueries {
		row, err := s.runStateQuery(ctx, r, backend.Call{})
		if err == nil {
			return &insertion{namespace: row}, nil
		}
		if !backend.FaultIn(err).KeepsConn() {
			return nil, err
		}
	}
	return c.insert, nil
}

var errComputedRows = errors.New("this server stores the parameters of an INSERT as they are, whatever its VALUES or SELECT makes of them, where they are several rows, or of a type that it does not bind: send its rows one by one, or write the values into the text")

// storedElsewhere says that the table is looked for elsewhere, or is nil: in the schema main of a catalogue, by the second part of a name.
func storedElsewhere(table string, in *insertion) error {
	first, parts := table, 1
	for last := lastPart(first); last != first; last = lastPart(first) {
		first, parts = strings.TrimSuffix(strings.TrimSuffix(first, last), "."), parts+1
	}
	inMain, inCatalogue := true, true
	if in != nil && len(in.namespace) > 1 && (parts == 1 || strings.EqualFold(strings.Trim(first, `"`), in.namespace[0].text)) {
		inMain = strings.EqualFold(in.namespace[1].text, mainSchema)
		inCatalogue = parts > 1 || !strings.EqualFold(in.namespace[0].text, ownCatalogue)
	}
	switch {
	case !inCatalogue:
		return fmt.Errorf("this server stores it in a catalogue of its own, and the session is in %s: name the table by its catalogue", ownCatalogue)
	case parts > 2 || !inMain:
		return fmt.Errorf("this server stores it in the schema %s of a catalogue: name the table by these two alone, send its rows one by one, or write the values into the text", mainSchema)
	default:
		return nil
	}
}

// ownCatalogue is that of a session of its own in SwanLake, which takes a table that is named without another for one of
// the lake's.
const ownCatalogue = "memory"

// mainSchema is that of DuckDB's catalogues.
const mainSchema = "main"

// storedOtherwise says what is stored otherwise, or is nil. It makes nothing, since every execution asks.
func storedOtherwise(columns []string, told *arrow.Schema, rows arrow.RecordBatch) error {
	n := int(rows.NumCols())
	for i := range columns {
		if i < n && rows.ColumnName(i) != columns[i] && slices.Contains(columns, rows.ColumnName(i)) {
			return fmt.Errorf("parameter %d is for column %q, and called %q: parameters go by their position, and by their names on this server", i+1, columns[i], rows.ColumnName(i))
		}
	}
	if told == nil || told.NumFields() != n {
		return nil
	}
	for i := range n {
		f, name := told.Field(i), columns[i%len(columns)]
		switch {
		case !strings.EqualFold(f.Name, name): // these are no columns
			return nil
		case f.Name != name:
			return fmt.Errorf("this server stores NULL in a column that is not written as in its table: write %q instead of %q", f.Name, name)
		}
		if row := misfit(rows.Column(i), f.Type); row >= 0 {
			return fmt.Errorf("parameter %d, row %d: this server stores NULL in column %q for a value that is no %s", i+1, row+1, name, f.Type)
		}
	}
	return nil
}

// misfit is the first row with a value that does not fit a type, or -1.
func misfit(values arrow.Array, told arrow.DataType) int {
	if arrow.TypeEqual(values.DataType(), told) {
		return -1
	}
	for row := range values.Len() {
		if values.IsValid(row) && !fits(values, row, told) {
			return row
		}
	}
	return -1
}

// fits reports whether a number, text or binary value can be converted to a type. Others are left to the server.
func fits(values arrow.Array, row int, told arrow.DataType) bool {
	var text string
	isText := false
	switch a := values.(type) {
	case array.StringLike:
		text, isText = a.Value(row), true
	case *array.Float64:
		text = strconv.FormatFloat(a.Value(row), 'f', -1, 64)
	case *array.Float32:
		text = strconv.FormatFloat(float64(a.Value(row)), 'f', -1, 32)
	case *array.Binary:
		width, fixed := told.(*arrow.FixedSizeBinaryType)
		return !fixed || len(a.Value(row)) == width.ByteWidth
	default:
		if !arrow.IsInteger(values.DataType().ID()) {
			return true
		}
		text = values.ValueStr(row)
	}
	var err error
	switch t := told.(type) {
	case *arrow.Int8Type, *arrow.Int16Type, *arrow.Int32Type, *arrow.Int64Type:
		_, err = strconv.ParseInt(text, 10, told.(arrow.FixedWidthDataType).BitWidth())
	case *arrow.Uint8Type, *arrow.Uint16Type, *arrow.Uint32Type, *arrow.Uint64Type:
		_, err = strconv.ParseUint(text, 10, told.(arrow.FixedWidthDataType).BitWidth())
	case *arrow.Decimal128Type:
		if strings.ContainsAny(text, "nN") { // not a number, or infinite
			return false
		}
		_, err = decimal128.FromString(text, t.Precision, t.Scale)
	case *arrow.Float32Type, *arrow.Float64Type:
		_, err = strconv.ParseFloat(text, 64)
	case *arrow.BooleanType:
		return !isText || slices.Contains([]string{"t", "true", "y", "yes", "on", "1", "f", "false", "n", "no", "off", "0"}, strings.ToLower(text))
	case *arrow.Date32Type, *arrow.TimestampType:
		if isText {
			_, err = time.Parse(time.DateOnly, text[:min(len(text), len(time.DateOnly))])
		}
	case *arrow.Time64Type:
		if isText {
			_, err = time.Parse(time.TimeOnly, text[:min(len(text), len(time.TimeOnly))])
		}
	}
	return err == nil
}
