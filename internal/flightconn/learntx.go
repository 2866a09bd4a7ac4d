package flightconn

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/effect"
	"github.com/flightpool/flightpool/internal/errjoin"
)

// RejectsUnknownTx is part of backend.Conn. If the answer is not known yet, it
// begins and rolls back a transaction of its own, so none may be open then;
// after a Begin it is known. A server without transactions is not trusted: it
// has shown nothing.
//
// The question takes up to six round trips. Where ctx ends first, the next Open asks
// it (learnCutTxIDs): callers with short deadlines would fail for ever.
func (c *Conn) RejectsUnknownTx(ctx context.Context) (trusted bool, err error) {
	defer func() {
		if err != nil && ctx.Err() != nil {
			c.endpoint.capabilities.txIDsCut.Store(true)
		}
	}()
	return c.rejectsUnknownTx(ctx)
}

// rejectsUnknownTx is RejectsUnknownTx, and leaves nothing for the next Open to ask.
func (c *Conn) rejectsUnknownTx(ctx context.Context) (trusted bool, err error) {
	capabilities := &c.endpoint.capabilities
	if known := capabilities.txIDs.Load(); known != txIDsUnknown || capabilities.transactions.isMissing() {
		return known == txIDsChecked, nil
	}
	ctx, r, err := c.begin(ctx, "RejectsUnknownTx", nil)
	if err != nil {
		return false, err
	}
	defer r.end()
	var tx backend.TxID
	err = capabilities.transactions.try(func(refusal error) bool { return lacksBegin(refusal) && r.confirmed(ctx, refusal) }, func() (err error) {
		tx, err = r.beginTx(ctx)
		return err
	})
	if lacksBegin(err) && capabilities.transactions.isMissing() {
		return false, nil
	}
	if err != nil {
		return false, r.wrapError(backend.StageExecute, err)
	}
	tx, trusted, err = r.learnTxIDs(ctx, tx)
	if tx != "" {
		err = r.rollBackOwnTx(ctx, tx, err)
	}
	if err != nil {
		return false, r.wrapError(backend.StageExecute, err)
	}
	return trusted, nil
}

// checkTx is what an open has to do about transactions.
func (c *Conn) checkTx(ctx context.Context) error {
	if err := c.learnCutTxIDs(ctx); err != nil {
		return err
	}
	return c.leaveEarlierTx(ctx)
}

// learnCutTxIDs learns what RejectsUnknownTx reports on a connection that is being opened,
// if a caller's context has cut that before. It is tried once for each time: an open that
// fails by it, since a transaction of its own may be open or no answer comes, is followed by one
// that does not.
//
// INVARIANT: a connection is lent only where that question has left no transaction, of which
// nobody would have the id, and which would take in what borrowers store.
func (c *Conn) learnCutTxIDs(ctx context.Context) error {
	if !c.endpoint.capabilities.txIDsCut.CompareAndSwap(true, false) {
		return nil
	}
	_, err := c.rejectsUnknownTx(ctx)
	switch {
	case err == nil, !backend.FaultIn(err).KeepsConn():
		return err
	case effect.Of(effect.Begin, err) == effect.Refused:
		return nil
	default:
		return (&rpcCall{conn: c, op: "Open", caller: ctx}).ownTxLost(err)
	}
}

// leaveEarlierTx sees to it that the session of a new connection is in no transaction, on a server that runs statements in
// whatever is open. SwanLake names sessions by the address and port of their client, and keeps them for some minutes when
// that has gone: what comes through a NAT or proxy, or from a container that was started again, may get the session of a
// connection that broke in its transaction, in which changes would be told as stored. It costs a round trip. A token
// that connections share names one session by their owner's will, which may be in a transaction of theirs.
//
// INVARIANT: once it is known that the server is such a one, no connection is opened without asking its session to roll
// back, twice where the first answer is a failure of the server's own, which says nothing. That it refuses says that there
// is no transaction. Connections that were opened before that was known are not asked.
func (c *Conn) leaveEarlierTx(ctx context.Context) error {
	cfg := c.cfg()
	if c.endpoint.capabilities.txIDs.Load() != txIDsIgnored || c.hasOwnSession() || cfg.Authorization != nil || len(cfg.Headers.Get(authorizationKey)) > 0 {
		return nil
	}
	_, err := c.Update(ctx, "ROLLBACK", backend.Call{})
	if err != nil && backend.FaultIn(err).KeepsConn() && effect.Of(effect.Commit, err) == effect.NotKnown {
		_, err = c.Update(ctx, "ROLLBACK", backend.Call{})
	}
	var e *backend.Error
	if !errors.As(err, &e) || e.Fault.KeepsConn() {
		return nil
	}
	failed := *e
	failed.Op, failed.Stage = "Open", backend.StageProbe
	return &failed
}

// RepeatsQueries is part of backend.QueryRepeater. Nothing shows without an
// effect that a server executes a query twice. One that does either confirms the end of transactions
// that it does not know, or is made after Arrow's example in C++ for SQLite (GizmoSQL with that backend), which takes the
// first step of a query for the types of its columns, and begins again for its rows: by that step SQLite has made all of a change. Others
// on SQLite, such as Arrow's example in Go, cannot be told from it.
func (c *Conn) RepeatsQueries(ctx context.Context) (bool, error) {
	if _, err := c.RejectsUnknownTx(ctx); err != nil {
		return false, err
	}
	capabilities := &c.endpoint.capabilities
	switch capabilities.txIDs.Load() {
	case txIDsChecked:
		return c.runsOnSQLite(ctx)
	case txIDsUnknown:
		return !capabilities.transactions.isMissing(), nil
	default:
		return true, nil
	}
}

// runsOnSQLite reports whether the server says that its database is SQLite, which it is asked until it has answered. One
// that refuses to tell is not, but a proxy's page leaves it open, and so does a failure that names no reason.
func (c *Conn) runsOnSQLite(ctx context.Context) (bool, error) {
	database := &c.endpoint.capabilities.database
	if database.Load() == nil {
		version, err := c.sqlInfo(ctx, flightsql.SqlInfoFlightSqlServerVersion)
		switch {
		case err == nil:
			database.Store(&version)
		case backend.FaultIn(err).KeepsConn():
			return effect.Of(effect.Statement, err) == effect.NotKnown, nil
		default:
			return false, err
		}
	}
	return strings.Contains(strings.ToLower(*database.Load()), "sqlite"), nil
}

// beginAndLearnTxIDs begins a transaction. If it is not known yet how the
// server treats ids that it does not know, that is learned with it. The
// transaction that is returned is one in which nothing has been done.
func (r *rpcCall) beginAndLearnTxIDs(ctx context.Context) (backend.TxID, error) {
	tx, err := r.beginTx(ctx)
	if err != nil || r.conn.endpoint.capabilities.txIDs.Load() != txIDsUnknown {
		return tx, err
	}
	tx, trusted, err := r.learnTxIDs(ctx, tx)
	if tx == "" || err == nil && trusted {
		return tx, err
	}
	// The server may have rolled back whatever was open: begin afresh.
	if err := r.rollBackOwnTx(ctx, tx, err); err != nil {
		return "", err
	}
	return r.beginTx(ctx)
}

// learnTxIDs asks the server, while tx is open, to roll back a transaction that does not
// exist. The id looks like tx: one of another shape is refused as malformed by servers
// that take any other for ended. A confirmation is believed at once. A refusal is believed
// once tx has been rolled back in the same way, and another refusal has come in the next
// transaction: a proxy, or a server for a while, may refuse the end of every transaction.
// An error is the lack of an answer, and nothing is recorded then. What is open afterwards
// is returned; it is empty, with an error, where that is not known.
func (r *rpcCall) learnTxIDs(ctx context.Context, tx backend.TxID) (open backend.TxID, trusted bool, err error) {
	refused, err := r.refusesUnknownTx(ctx, tx)
	if !refused || r.endTx(ctx, tx, false) != nil {
		return tx, false, err
	}
	if tx, err = r.beginTx(ctx); err != nil {
		return "", false, err
	}
	if refused, err = r.refusesUnknownTx(ctx, tx); refused {
		r.conn.endpoint.capabilities.txIDs.Store(txIDsChecked)
	}
	return tx, refused, err
}

// refusesUnknownTx asks to roll back a transaction that does not exist, and records that
// the server has confirmed it. UNIMPLEMENTED says nothing of the transaction.
func (r *rpcCall) refusesUnknownTx(ctx context.Context, tx backend.TxID) (refused bool, err error) {
	err = r.endTx(ctx, unknownTxID(tx), false)
	switch {
	case err == nil:
		r.conn.endpoint.capabilities.txIDs.Store(txIDsIgnored)
		return false, nil
	case !sessionAnswered(err):
		return false, err
	default:
		return !isUnsupported(err), nil
	}
}

// unknownTxID makes an id that the server cannot have given out but might
// have: of the same length and alphabet, and random, or ending in a huge number
// where it is one or too short to be random.
func unknownTxID(tx backend.TxID) backend.TxID {
	id := []byte(tx)
	random := make([]byte, len(id))
	_, _ = rand.Read(random) // it never fails
	digits := true
	for _, b := range id {
		digits = digits && b >= '0' && b <= '9'
	}
	hex := "0123456789abcdef"
	bits := 0
	for i, b := range id {
		switch {
		case b >= '0' && b <= '9', b >= 'a' && b <= 'f':
			random[i] = hex[random[i]%16]
			bits += 4
		case b >= 'A' && b <= 'F':
			random[i] = hex[random[i]%10]
			bits += 3
		case b > ' ' && b < 0x7f: // separators and prefixes stay
			random[i] = b
		default:
			bits += 8
		}
	}
	if digits || bits < minRandomBits { // as "tx-7" would be that of another session
		return backend.TxID(strings.TrimRight(string(id), "0123456789") + "9223372036854775807")
	}
	return backend.TxID(random)
}

// minRandomBits is how random an id must be for nobody to have it.
const minRandomBits = 32

// lacksBegin reports whether the server has no transactions, by its answer to a Begin. A page
// of a proxy's is none: a transaction may be open, which would take in what the session is
// sent later.
func lacksBegin(err error) bool {
	return isUnsupported(err) && effect.Of(effect.Begin, err) == effect.Refused
}

// rollBackOwnTx rolls back a transaction that the backend has begun for itself,
// after learning has ended in err. Where the server does not confirm that, and
// does not begin and end another one either, statements of the session could
// run in the transaction, so the session is given up. It returns err where the
// transaction is over.
func (r *rpcCall) rollBackOwnTx(ctx context.Context, tx backend.TxID, err error) error {
	end := r.endTx(ctx, tx, false)
	if end == nil || saysTxGone(end) && r.takesTx(ctx) { // or it could not be rolled back just then
		return err
	}
	return r.ownTxLost(errjoin.Join(err, end))
}

// takesTx reports whether the server begins and ends a transaction, so that
// none was open. A server with one transaction to a session refuses to begin a
// second, or ends the first.
func (r *rpcCall) takesTx(ctx context.Context) bool {
	tx, err := r.beginTx(ctx)
	return err == nil && r.endTx(ctx, tx, false) == nil
}

// ownTxLost makes the error by which the session is given up.
func (r *rpcCall) ownTxLost(why error) error {
	e := &backend.Error{Op: r.op, Stage: backend.StageExecute, Fault: backend.FaultSession, Target: r.conn.target(), Ctx: r.caller.Err()}
	e.Err = fmt.Errorf("%w: a transaction of the pool's own, by which it learns how the server treats them, may be open: %w", backend.ErrSessionLost, why)
	return e
}

// saysTxGone reports whether a rollback that ended in err says that its
// transaction is not open. It is not believed alone: a proxy, or a server for a
// while, may answer so to anything (takesTx).
func saysTxGone(err error) bool {
	switch status.Code(err) {
	case codes.OK, codes.NotFound, codes.InvalidArgument, codes.FailedPrecondition:
		return true
	default:
		return false
	}
}
