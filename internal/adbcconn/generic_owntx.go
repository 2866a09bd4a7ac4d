package adbcconn

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
)

// ADBC's driver for PostgreSQL runs a statement that has a time with a zone among its parameters, outside of a transaction, in one of its
// own, for which it sets the session's time zone. It commits that behind the last row of the parameters, or where the result is read to its end.
// Where the statement fails, in the server or before that, or its result is left, the transaction stays: all that came next would be done in it,
// and be told as done, or be refused.
//
// INVARIANT: no call outside of a transaction leaves one behind, or the connection is lost.

// expectOwnTx says that the statement which is about to run has these parameters. Until it has succeeded, its transaction is one to be rolled
// back. The caller holds driverLock.
func (c *GenericConn) expectOwnTx(params *arrow.Schema) {
	if c.autocommitOff || !c.isPostgreSQL() {
		return
	}
	for _, field := range params.Fields() {
		kind := field.Type
		if extension, ok := kind.(arrow.ExtensionType); ok {
			kind = extension.StorageType()
		}
		if t, ok := kind.(*arrow.TimestampType); ok && t.TimeZone != "" {
			c.ownTx = "ROLLBACK"
		}
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
	}
}
