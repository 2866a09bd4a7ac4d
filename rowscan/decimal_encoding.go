package rowscan

import (
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/decimal256"
)

// MarshalText gives String. It is part of encoding.TextMarshaler, and never
// fails.
func (d Decimal) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what ParseDecimal reads. It is part of
// encoding.TextUnmarshaler. An error leaves 0.
func (d *Decimal) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDecimal(string(text))
	return err
}

// MarshalJSON gives String as a JSON string: most readers of JSON make floats
// of its numbers.
func (d Decimal) MarshalJSON() ([]byte, error) { return strconv.AppendQuote(nil, d.String()), nil }

// UnmarshalJSON reads a JSON string or number, both exactly. As usual, null
// changes nothing.
func (d *Decimal) UnmarshalJSON(text []byte) error {
	s := string(text)
	if s == "null" {
		return nil
	}
	if strings.HasPrefix(s, `"`) {
		if err := json.Unmarshal(text, &s); err != nil {
			return err
		}
	}
	return d.UnmarshalText([]byte(s))
}

// Value is part of driver.Valuer: String, which every database reads exactly.
func (d Decimal) Value() (driver.Value, error) { return d.String(), nil }

// Scan is part of sql.Scanner. It takes texts that ParseDecimal reads,
// integers, and floats by their shortest text. NULL needs a *Decimal or
// sql.Null. Drivers give text or bytes for a decimal column, as a rule; a float
// has been rounded by then.
func (d *Decimal) Scan(src any) (err error) {
	switch v := src.(type) {
	case nil:
		return errors.New("NULL does not fit rowscan.Decimal: use a pointer or sql.Null")
	case string:
		*d, err = ParseDecimal(v)
	case []byte:
		*d, err = ParseDecimal(string(v))
	case int64:
		*d = Decimal{coef: decimal256.FromI64(v)}
	case float64:
		*d, err = ParseDecimal(strconv.FormatFloat(v, 'f', -1, 64))
	case Decimal:
		*d = v
	default:
		err = fmt.Errorf("%T does not fit rowscan.Decimal", src)
	}
	return err
}
