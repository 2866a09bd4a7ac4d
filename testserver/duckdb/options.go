//go:build duckdb_arrow

package duckdb

import (
	"context"

	"github.com/flightpool/flightpool/testserver"
)

var _ testserver.OptionSetter = (*session)(nil)

// SetOption obeys the two options that Flight SQL names: where names are looked
// for. Either taken back, the session is where it was at its start.
func (s *session) SetOption(ctx context.Context, name, value string) (err error) {
	sql := ""
	switch {
	case name != "catalog" && name != "schema":
		return nil
	case value == "":
		sql = "RESET schema"
	case name == "catalog":
		sql = "USE " + ident(value)
	default:
		sql = "SET schema = " + literal(ident(value))
	}
	_, err = s.Update(ctx, sql, nil)
	return err
}
