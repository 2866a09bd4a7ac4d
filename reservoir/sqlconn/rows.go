package sqlconn

import (
	"context"
	"database/sql/driver"
	"io"
	"reflect"
)

// borrowedRows end the time of their query with themselves. They have all optional
// interfaces of driver.Rows; what the driver's do not have is answered as
// database/sql would without it.
type borrowedRows struct {
	driver.Rows
	c    *Conn
	stop context.CancelFunc // nil: the query has no time
}

func (r *borrowedRows) Close() error {
	if r.stop != nil {
		defer r.stop()
	}
	return catchPanicError(r.c, r.Rows.Close)
}

func (r *borrowedRows) Next(dest []driver.Value) error {
	return catchPanicError(r.c, func() error { return r.Rows.Next(dest) })
}

func (r *borrowedRows) HasNextResultSet() bool {
	n, ok := r.Rows.(driver.RowsNextResultSet)
	return ok && n.HasNextResultSet()
}

func (r *borrowedRows) NextResultSet() error {
	if n, ok := r.Rows.(driver.RowsNextResultSet); ok {
		return n.NextResultSet()
	}
	return io.EOF
}

func (r *borrowedRows) ColumnTypeScanType(index int) reflect.Type {
	if t, ok := r.Rows.(driver.RowsColumnTypeScanType); ok {
		return t.ColumnTypeScanType(index)
	}
	return reflect.TypeFor[any]()
}

func (r *borrowedRows) ColumnTypeDatabaseTypeName(index int) string {
	if t, ok := r.Rows.(driver.RowsColumnTypeDatabaseTypeName); ok {
		return t.ColumnTypeDatabaseTypeName(index)
	}
	return ""
}

func (r *borrowedRows) ColumnTypeLength(index int) (length int64, ok bool) {
	if t, ok := r.Rows.(driver.RowsColumnTypeLength); ok {
		return t.ColumnTypeLength(index)
	}
	return 0, false
}

func (r *borrowedRows) ColumnTypeNullable(index int) (nullable, ok bool) {
	if t, ok := r.Rows.(driver.RowsColumnTypeNullable); ok {
		return t.ColumnTypeNullable(index)
	}
	return false, false
}

func (r *borrowedRows) ColumnTypePrecisionScale(index int) (precision, scale int64, ok bool) {
	if t, ok := r.Rows.(driver.RowsColumnTypePrecisionScale); ok {
		return t.ColumnTypePrecisionScale(index)
	}
	return 0, 0, false
}
