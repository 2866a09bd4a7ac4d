package flightconn

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
)

// CheckSendable refuses a schema of which Arrow's IPC format cannot carry the
// values: a field has one dictionary, so of a dictionary whose values are
// themselves encoded by one, only the indices would be sent, and the server
// would take them for the values. Arrow's writers, that of Go and that of C++,
// do not refuse it. Both backends ask this before they send parameters or rows.
func CheckSendable(schema *arrow.Schema) error {
	for _, f := range schema.Fields() {
		if err := checkSendableType(f.Type); err != nil {
			return fmt.Errorf("column %q: %w", f.Name, err)
		}
	}
	return nil
}

// checkSendableType looks at a type and at all that it is made of.
func checkSendableType(t arrow.DataType) error {
	switch t := t.(type) {
	case arrow.ExtensionType:
		return checkSendableType(t.StorageType())
	case *arrow.DictionaryType:
		if isDictionary(t.ValueType) {
			return fmt.Errorf("%v cannot be sent: the values of a dictionary cannot be dictionary-encoded themselves", t)
		}
		return checkSendableType(t.ValueType)
	case arrow.NestedType:
		for _, f := range t.Fields() {
			if err := checkSendableType(f.Type); err != nil {
				return err
			}
		}
	}
	return nil
}

// isDictionary looks through extension types.
func isDictionary(t arrow.DataType) bool {
	if e, ok := t.(arrow.ExtensionType); ok {
		return isDictionary(e.StorageType())
	}
	return t.ID() == arrow.DICTIONARY
}
