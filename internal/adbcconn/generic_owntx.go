package adbcconn

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// ADBC's driver for PostgreSQL runs a statement that has a time with a zone among its parameters, outside of a transaction, in one of its
// own, for which it sets the session's time zone. Behind the last row of the parameters, or where the result is read to its end, it puts the zone
// back and commits. Where the statement fails, in the server or before that, or its result is left, the transaction stays: all that came next
// would be done in it, and be told as done, or be refused. A ROLLBACK puts the zone back, a COMMIT does not.
//
// Within a transaction of its caller's it sets the zone, and puts it back, alike: what a result that is left leaves behind, a COMMIT keeps.
//
// INVARIANT: no call outside of a transaction leaves one behind, or another time zone, or the connection is lost.

// expectOwnTx says that the statement which is about to run has these parameters. Until it has succeeded, its transaction is one to be rolled
// back. The caller holds driverLock.
func (c *GenericConn) expectOwnTx(params arrow.RecordBatch) {
	if !c.isPostgreSQL() || !slices.ContainsFunc(params.Schema().Fields(), func(f arrow.Field) bool { return mayBeZoned(f.Type) }) {
		return
	}
	if c.autocommitOff {
		c.zoneSet = true
	} else {
		c.ownTx, c.ownTxRows = "ROLLBACK", params.NumRows()
	}
}

// ownTxEnded says that the driver has ended its transaction, and put the time zone back. The caller holds driverLock.
func (c *GenericConn) ownTxEnded() { c.ownTx, c.zoneSet = "", false }

// leaveZone says that a result is let go of, be it not at its end. The caller holds driverLock.
func (c *GenericConn) leaveZone() { c.zoneLeft, c.zoneSet = c.zoneLeft || c.zoneSet, false }

// zoneAfter gives up the connection behind a COMMIT of the transaction in which the time zone was left. The caller holds driverLock.
func (c *GenericConn) zoneAfter(commit bool) {
	if commit && c.zoneLeft {
		c.markLost(errZoneLeft)
	}
	c.zoneLeft, c.zoneSet = false, false
}

// mayBeZoned reports whether a parameter of the type may be a time with a zone to the driver. What is NULL in all rows is of the type
// that the server wants.
func mayBeZoned(kind arrow.DataType) bool {
	switch kind := kind.(type) {
	case arrow.ExtensionType:
		return mayBeZoned(kind.StorageType())
	case *arrow.DictionaryType:
		return mayBeZoned(kind.ValueType)
	case *arrow.TimestampType:
		return kind.TimeZone != ""
	default:
		return kind.ID() == arrow.NULL
	}
}

// keepsOwnTx says whether what was done in the driver's transaction so far is to be kept, as what is done outside of one is, should the result be
// left. The caller holds driverLock.
func (c *GenericConn) keepsOwnTx(keep bool) {
	switch {
	case c.ownTx == "":
	case keep:
		c.ownTx = "COMMIT"
	default:
		c.ownTx = "ROLLBACK"
	}
}

// readOwnTx reads a result that is left to its end, where nothing more is executed for that: with one row of parameters the driver has
// all of it. The caller holds driverLock.
func (c *GenericConn) readOwnTx(rows array.RecordReader) {
	if c.ownTx != "COMMIT" || c.ownTxRows != 1 || c.Lost() != nil {
		return
	}
	for rows.Next() { // and drop it
		continue
	}
	if c.keepsOwnTx(false); rows.Err() == nil {
		c.ownTxEnded()
	}
}

// endOwnTx ends the driver's transaction, unless the driver has. The caller holds driverLock.
func (c *GenericConn) endOwnTx() {
	sql := c.ownTx
	if c.ownTx = ""; sql == "" || c.Lost() != nil {
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(c.life), c.cfg.CloseTimeout/2)
	defer stop()
	if err := c.runText(ctx, sql); err != nil {
		c.markLost(fmt.Errorf("the driver's own transaction has not ended: %w", err))
	} else if sql == "COMMIT" {
		c.markLost(errZoneLeft)
	}
}

var errZoneLeft = errors.New("the driver has left the session's time zone at UTC: a result of parameters with a time among them was not read to its end")
