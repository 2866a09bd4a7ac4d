package flightconn

import (
	"github.com/apache/arrow-go/v18/arrow"
)

// checkParams refuses parameters that cannot be what the statement takes.
//
// Only what no server could convert is refused. A schema without fields, or a
// field of type null, string or union, is what servers declare that cannot
// infer the type of a placeholder.
func (r *run) checkParams(want *arrow.Schema, params arrow.RecordBatch) error {
	if params.NumRows() == 0 {
		return r.usage("the parameters have no rows")
	}
	if want == nil || want.NumFields() == 0 {
		return nil
	}
	if got := int(params.NumCols()); got != want.NumFields() {
		return r.usage("the statement takes %d parameters, not %d", want.NumFields(), got)
	}
	for i, field := range want.Fields() {
		got := params.Schema().Field(i)
		if !convertible(kindOf(got.Type), kindOf(field.Type)) {
			return r.usage("parameter %d (%q): the statement takes %v, not %v", i+1, got.Name, field.Type, got.Type)
		}
	}
	return nil
}

// kind groups the types that servers convert into one another.
type kind uint8

const (
	anyKind kind = iota
	boolKind
	numberKind
	binaryKind
	temporalKind
	nestedKind
)

func convertible(got, want kind) bool { return want == anyKind || got == anyKind || got == want }

func kindOf(t arrow.DataType) kind {
	switch id := t.ID(); {
	case id == arrow.DICTIONARY:
		return kindOf(t.(*arrow.DictionaryType).ValueType)
	case id == arrow.EXTENSION:
		return kindOf(t.(arrow.ExtensionType).StorageType())
	case id == arrow.BOOL:
		return boolKind
	case arrow.IsInteger(id), arrow.IsFloating(id), arrow.IsDecimal(id):
		return numberKind
	case id == arrow.BINARY, id == arrow.LARGE_BINARY, id == arrow.BINARY_VIEW, id == arrow.FIXED_SIZE_BINARY:
		return binaryKind
	case id == arrow.DATE32, id == arrow.DATE64, id == arrow.TIME32, id == arrow.TIME64, id == arrow.TIMESTAMP,
		id == arrow.DURATION, id == arrow.INTERVAL_MONTHS, id == arrow.INTERVAL_DAY_TIME, id == arrow.INTERVAL_MONTH_DAY_NANO:
		return temporalKind
	case arrow.IsUnion(id), id == arrow.NULL, id == arrow.STRING, id == arrow.LARGE_STRING, id == arrow.STRING_VIEW:
		return anyKind
	default:
		return nestedKind
	}
}
