package flightconn

import (
	"context"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/flightpool/flightpool/backend"
)

// storedAsText are the types of which GizmoSQL on DuckDB, by its source, stores what Arrow's C++ library prints of a value: of one in a
// dictionary all of the dictionary, of bytes a text of the same.
var storedAsText = []arrow.Type{
	arrow.DICTIONARY, arrow.RUN_END_ENCODED, arrow.DENSE_UNION, arrow.SPARSE_UNION, arrow.LIST_VIEW, arrow.LARGE_LIST_VIEW,
	arrow.BINARY_VIEW, arrow.FIXED_SIZE_BINARY, arrow.FLOAT16, arrow.INTERVAL_MONTHS, arrow.INTERVAL_DAY_TIME, arrow.INTERVAL_MONTH_DAY_NANO,
}

// printedExtensions are the extension types that Arrow's C++ library knows by itself. Of a value it prints an array of one, in
// brackets and of three lines: [, "123.45" and ]. Those of other names it takes for what they are stored as.
var printedExtensions = []string{"arrow.bool8", "arrow.fixed_shape_tensor", "arrow.json", "arrow.opaque", "arrow.uuid"}

// CheckRows refuses rows of an ingestion of which the server stores and confirms other values. It is the one of CheckNulls.
func (c *Conn) CheckRows(ctx context.Context, schema *arrow.Schema, call backend.Call) error {
	at := slices.IndexFunc(schema.Fields(), isPrinted)
	if at < 0 {
		return nil
	}
	if loses, err := c.losesNulls(ctx, call); !loses {
		return err
	}
	r := &rpcCall{conn: c, op: "Ingest", caller: ctx}
	f := schema.Field(at)
	what := f.Type.String()
	if name := extensionOf(f); name != "" {
		what = name
	}
	return r.usageError("rows: column %q is %s, for which this server stores a text of its own, or what that reads as: send plain values or texts, as a query gives by CAST(… AS VARCHAR)", f.Name, what)
}

// isPrinted reports whether GizmoSQL on DuckDB stores what Arrow's C++ library prints, of a value of a column or of what that is made of.
func isPrinted(f arrow.Field) bool {
	return hasField(f, func(f arrow.Field) bool {
		return slices.Contains(storedAsText, f.Type.ID()) || isMisreadDuration(f) || isPrintedExtension(f)
	})
}

// hasField reports whether a field, or one that its type is made of, is such a one.
func hasField(f arrow.Field, one func(arrow.Field) bool) bool {
	if one(f) {
		return true
	}
	switch t := f.Type.(type) {
	case arrow.ExtensionType:
		return hasField(arrow.Field{Type: t.StorageType()}, one)
	case *arrow.DictionaryType:
		return hasField(arrow.Field{Type: t.ValueType}, one)
	case arrow.NestedType:
		return slices.ContainsFunc(t.Fields(), func(f arrow.Field) bool { return hasField(f, one) })
	default:
		return false
	}
}

// isMisreadDuration reports whether a field has durations whose number GizmoSQL on DuckDB would take for one of seconds, as it does in the text
// of any, 1.5 s in nanoseconds for 47 years, or months, whose M it takes for minutes.
func isMisreadDuration(f arrow.Field) bool {
	d, ok := f.Type.(*arrow.DurationType)
	return ok && d.Unit != arrow.Second || f.Type.ID() == arrow.INTERVAL_MONTHS
}

// hasDuration reports whether there is such a duration among the parameters, but where the server has told that it wants a number.
func hasDuration(schema, told *arrow.Schema) bool {
	for i := range schema.NumFields() {
		if !hasField(schema.Field(i), isMisreadDuration) {
			continue
		}
		if told == nil || i >= told.NumFields() {
			return true
		}
		if id := told.Field(i).Type.ID(); !arrow.IsInteger(id) && !arrow.IsFloating(id) && !arrow.IsDecimal(id) {
			return true
		}
	}
	return false
}

// hasPrinted reports whether there is a parameter that the server binds as what no database reads: the text list<item: int64>[1, 2],
// for example.
func hasPrinted(schema *arrow.Schema) bool {
	for i := range schema.NumFields() { // Fields copies them
		if hasField(schema.Field(i), isUnreadable) {
			return true
		}
	}
	return false
}

func isUnreadable(f arrow.Field) bool {
	_, nested := f.Type.(arrow.NestedType)
	return nested || f.Type.ID() == arrow.INTERVAL_MONTH_DAY_NANO || isPrintedExtension(f)
}

func isPrintedExtension(f arrow.Field) bool {
	return slices.Contains(printedExtensions, extensionOf(f))
}

// extensionOf is the name of a field's extension type, which this process may not know, or empty.
func extensionOf(f arrow.Field) string {
	if t, ok := f.Type.(arrow.ExtensionType); ok {
		return t.ExtensionName()
	}
	name, _ := f.Metadata.GetValue(ipc.ExtensionTypeKeyName)
	return name
}
