package flightconn

import (
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/internal/sqlscan"
)

// ByNumber is what a server has told of the parameters of a statement, each at the place of its number, by which the values go.
// SwanLake, which counts its handles, tells the columns that they are for in the order of the text: of SET due = $2 WHERE
// id = $1 first what due is, for which the first parameter, that of id, would be taken. It is nil where it does not show whose is whose.
func ByNumber(told *arrow.Schema, sql, handle string) *arrow.Schema {
	if !tellsColumns(told) || !isCountedHandle(handle) {
		return told
	}
	if params := sqlscan.NumberedParams(sql); len(params) > 0 {
		return byPlace(told, sql, params)
	}
	return told
}

// ByNumberOrColumn is ByNumber where the handle is not known: by the first column, which stands beside a parameter, it is seen that the server tells these.
func ByNumberOrColumn(told *arrow.Schema, sql string) *arrow.Schema {
	if !tellsColumns(told) {
		return told
	}
	if params := sqlscan.NumberedParams(sql); slices.ContainsFunc(params, func(p sqlscan.NumberedParam) bool { return p.IsBeside(told.Field(0).Name) }) {
		return byPlace(told, sql, params)
	}
	return told
}

// tellsColumns reports whether parameters are not told by their numbers.
func tellsColumns(told *arrow.Schema) bool {
	return told != nil && told.NumFields() > 0 && !strings.HasPrefix(told.Field(0).Name, "$")
}

// byPlace gives each number what is told at the place at which it comes first to the text.
//
// INVARIANT: no parameter is taken for another. Of those that stand in a function, and of some others, SwanLake tells nothing, and what
// it tells in all is as many as there are numbers where another stands twice: where there are more places than told, the
// column stands beside the number. The rows of an INSERT come first, and are told in full.
func byPlace(told *arrow.Schema, sql string, params []sqlscan.NumberedParam) *arrow.Schema {
	n := told.NumFields()
	if script := sqlscan.Parse(sql); len(script.Statements) > 0 && script.Statements[0].InsertInto != "" {
		params = params[:min(n, len(params))]
	}
	fields, next := make([]arrow.Field, n), 0
	for _, p := range params {
		if p.Number < 1 || p.Number > n {
			return nil
		}
		if fields[p.Number-1].Type == nil {
			fields[p.Number-1] = told.Field(next)
			next++
		}
	}
	if next < n || len(params) > n && !allBeside(params, fields) {
		return nil
	}
	return arrow.NewSchema(fields, nil)
}

// allBeside reports whether what is told of each parameter stands beside it, at one of its places.
func allBeside(params []sqlscan.NumberedParam, fields []arrow.Field) bool {
	beside := make(map[int]bool, len(fields))
	for _, p := range params {
		beside[p.Number] = beside[p.Number] || p.IsBeside(fields[p.Number-1].Name)
	}
	for _, is := range beside {
		if !is {
			return false
		}
	}
	return true
}

// isCountedHandle reports whether a handle is a small number of eight bytes.
func isCountedHandle(handle string) bool { return len(handle) == 8 && handle[:4] == "\x00\x00\x00\x00" }
