package flightconn

import (
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
)

// CheckParams refuses parameters whose number cannot be right. want is what the
// server says of them; without fields, or nil, it does not know.
//
// Their types are for the server to judge: what it declares for a placeholder
// is often a guess, and which types it converts only it knows. Refusing here
// what it would take is worse than one call more.
func CheckParams(want *arrow.Schema, params arrow.RecordBatch) error {
	if params.NumRows() == 0 {
		return errors.New("the parameters have no rows")
	}
	if want == nil || want.NumFields() == 0 {
		return nil
	}
	if got := int(params.NumCols()); got != want.NumFields() {
		return fmt.Errorf("the statement takes %d parameters, not %d", want.NumFields(), got)
	}
	return nil
}
