package adbcconn

import (
	"context"
	"strconv"
	"strings"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-adbc/go/adbc/driver/flightsql"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// learnDriver finds out whether the driver is one of Flight SQL, and what it sends. The caller holds driverLock.
func (c *GenericConn) learnDriver(ctx context.Context, db adbc.Database) (err error) {
	if c.isFlightSQL, err = isFlightSQL(ctx, c.cn); c.isFlightSQL {
		c.maxMessage = maxMessageOf(db)
	}
	return err
}

// isFlightSQL asks the driver for its name. Drivers answer that themselves. One
// that has no GetInfo is another; any other error leaves it open what the driver
// is, and what it would need is not guessed.
func isFlightSQL(ctx context.Context, cn adbc.Connection) (bool, error) {
	info, err := cn.GetInfo(ctx, []adbc.InfoCode{adbc.InfoDriverName})
	if e, ok := adbcError(err); ok && e.Code == adbc.StatusNotImplemented {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer info.Release()
	for {
		if more, err := hasNext(ctx, info); !more {
			return false, err
		}
		value, ok := info.RecordBatch().Column(1).(*array.DenseUnion)
		for i := 0; ok && i < value.Len(); i++ {
			if strings.Contains(value.ValueStr(i), "Flight SQL") {
				return true, nil
			}
		}
	}
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
