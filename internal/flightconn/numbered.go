package flightconn

import (
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/internal/sqlscan"
)

// ByNumber is what a server has told of the parameters of a statement, each at the place of its number, by which the values go.
// SwanLake, which counts its handles, tells the columns that they are for in the order of the text: of SET due = $2 WHERE
// id = $1 first what due is, for which the first parameter, that of id, would be taken. It is nil where it does not show whose is whose.
func ByNumber(told *arrow.Schema, sql, handle string) *arrow.Schema {
	if told == nil || told.NumFields() == 0 || !isCountedHandle(handle) || strings.HasPrefix(told.Field(0).Name, "$") { // by numbers
		return told
	}
	numbers := sqlscan.ParamNumbers(sql)
	if inTurn(numbers) {
		return told
	}
	fields := make([]arrow.Field, told.NumFields())
	for i, number := range numbers {
		if len(numbers) != len(fields) || number < 1 || number > len(fields) || fields[number-1].Type != nil {
			return nil
		}
		fields[number-1] = told.Field(i)
	}
	return arrow.NewSchema(fields, nil)
}

// inTurn reports whether the parameters come to the text in the order of their numbers.
func inTurn(numbers []int) bool {
	last := 0
	for _, number := range numbers {
		if number > last+1 {
			return false
		}
		last = max(last, number)
	}
	return true
}

// isCountedHandle reports whether a handle is a small number of eight bytes.
func isCountedHandle(handle string) bool { return len(handle) == 8 && handle[:4] == "\x00\x00\x00\x00" }
