package flightconn

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/eof"
)

// openTxs are the transactions that the connections of an endpoint have open.
// Servers that count ids within a session give the same one to several.
//
// An id that is open twice is a sign that the server does not keep its
// transactions apart, which cost one session its changes and told another that
// they were stored.
type openTxs struct {
	mu     sync.Mutex
	byID   map[backend.TxID]map[*Conn]struct{}
	byConn map[*Conn]backend.TxID
}

// claim records that c has tx open, and reports whether another connection has
// one of the same id. tx is entered even where it is shared; the caller must
// release it if it gives up.
func (l *openTxs) claim(tx backend.TxID, c *Conn) (shared bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byID == nil {
		l.byID, l.byConn = map[backend.TxID]map[*Conn]struct{}{}, map[*Conn]backend.TxID{}
	}
	l.forget(c) // a connection has one
	l.byConn[c] = tx
	owners := l.byID[tx]
	if owners == nil {
		owners = map[*Conn]struct{}{}
		l.byID[tx] = owners
	}
	owners[c] = struct{}{}
	return len(owners) > 1
}

// release records that c has no transaction open any more. It is called when
// the server has confirmed the end of the transaction, and when the connection
// is closed; a second time it does nothing. After a refusal the session asks
// again, under the same id, or begins another transaction.
func (l *openTxs) release(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(c)
}

// forget is release. The lock is held.
func (l *openTxs) forget(c *Conn) {
	tx, ok := l.byConn[c]
	if !ok {
		return
	}
	delete(l.byConn, c)
	delete(l.byID[tx], c)
	if len(l.byID[tx]) == 0 {
		delete(l.byID, tx)
	}
}

// claimTx records a transaction that has begun. It fails where the server names
// that of another session the same: ending the one could then end the other.
// Only a server whose sessions ignore ids, and which says that it has
// transactions, is known to keep them apart all the same.
//
// Nothing is sent to end the transaction, which could be the other session's;
// so the connection is given up. It must be called before anything runs in the
// transaction.
func (c *Conn) claimTx(ctx context.Context, tx backend.TxID) error {
	if !c.endpoint.openTxs.claim(tx, c) {
		return nil
	}
	if c.endpoint.capabilities.txIDs.Load() == txIDsIgnored && c.hasTransactions(ctx) {
		return nil
	}
	c.endpoint.openTxs.release(c)
	return &backend.Error{
		Op: "Begin", Stage: backend.StageExecute, Fault: backend.FaultSession, Target: c.target(),
		Err: fmt.Errorf("the server gave the transaction id %x to two sessions at once, so its transactions are not apart from each other: do not use transactions there", string(tx)),
	}
}

// hasTransactions asks the server's SqlInfo whether it has transactions. One
// that does not tell has none. It makes a call of its own on the connection,
// and any failure of that is a no as well.
func (c *Conn) hasTransactions(ctx context.Context) bool {
	value, _ := c.sqlInfo(ctx, flightsql.SqlInfoFlightSqlServerTransaction)
	return value != "" && value != "0" && value != array.NullValueStr
}

// sqlInfo asks the server's SqlInfo for a value as text, empty where it does not tell. It
// makes a call of its own on the connection.
func (c *Conn) sqlInfo(ctx context.Context, code flightsql.SqlInfo) (value string, err error) {
	stream, err := c.Metadata(ctx, backend.MetadataRequest{Kind: backend.MetadataSQLInfo, Info: []uint32{uint32(code)}}, backend.Call{})
	if err != nil {
		return "", err
	}
	defer stream.Close()
	for {
		batch, err := stream.Next()
		if eof.Reached(err) {
			return value, nil
		}
		if err != nil {
			return "", err
		}
		if batch.NumCols() < 2 {
			return "", nil // no SqlInfo
		}
		for row := range int(batch.NumRows()) {
			ids, ok1 := batch.Column(0).(*array.Uint32)
			values, ok2 := batch.Column(1).(*array.DenseUnion)
			if ok1 && ok2 && ids.Value(row) == uint32(code) {
				value = strings.Clone(values.Field(values.ChildID(row)).ValueStr(int(values.ValueOffset(row)))) // the batch's memory is used again
			}
		}
	}
}
