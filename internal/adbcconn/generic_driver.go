package adbcconn

import (
	"context"
	"strconv"
	"strings"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-adbc/go/adbc/driver/flightsql"

	"github.com/flightpool/flightpool/backend"
)

// learnDriver finds out what the driver is: one of Flight SQL, and what it sends, or another. The caller holds driverLock.
func (c *GenericConn) learnDriver(ctx context.Context, db adbc.Database) (err error) {
	if c.driverName, err = driverName(ctx, c.cn); strings.Contains(c.driverName, "Flight SQL") {
		c.isFlightSQL, c.maxMessage = true, maxMessageOf(db)
	}
	return err
}

// driverName asks the driver for its name. Drivers answer that themselves. One
// that has no GetInfo has none; any other error leaves it open what the driver
// is, and what it would need is not guessed.
func driverName(ctx context.Context, cn adbc.Connection) (name string, err error) {
	info, err := cn.GetInfo(ctx, []adbc.InfoCode{adbc.InfoDriverName})
	if e, ok := adbcError(err); ok && e.Code == adbc.StatusNotImplemented {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer info.Release()
	for {
		if more, err := hasNext(ctx, info); !more {
			return name, err
		}
		value := info.RecordBatch().Column(1) // a union, of either mode
		for i := range value.Len() {
			name += strings.Clone(value.ValueStr(i)) // the memory is the driver's
		}
	}
}

func (c *GenericConn) isPostgreSQL() bool { return strings.Contains(c.driverName, "PostgreSQL") }
func (c *GenericConn) isSQLite() bool     { return strings.Contains(c.driverName, "SQLite") }
func (c *GenericConn) isDuckDB() bool     { return strings.Contains(c.driverName, "DuckDB") }

// CutsTexts is part of backend.TextCutter. SQLite's library compiles the first statement of a text, and ADBC's driver for it
// looks at no other.
func (c *GenericConn) CutsTexts(context.Context, bool, backend.TxID) (bool, error) {
	return c.isSQLite(), nil
}

// maxMessageOf is how large a message the Flight SQL driver of a database sends, by its option or default.
func maxMessageOf(db adbc.Database) int {
	const byDefault = 16 << 20
	options, ok := db.(adbc.GetSetOptions)
	if !ok {
		return byDefault
	}
	value, _ := options.GetOption(flightsql.OptionWithMaxMsgSize)
	size, err := strconv.Atoi(value)
	if err != nil || size <= 2*headroom {
		return byDefault
	}
	return size
}
