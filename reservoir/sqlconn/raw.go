package sqlconn

import (
	"database/sql"
	"errors"

	"github.com/flightpool/flightpool/internal/callback"
)

// errRawBroke is why a connection is lost whose state nobody knows.
var errRawBroke = errors.New("sqlconn: the function that was given to Raw panicked, or ended its goroutine")

// Raw gives f the driver's own connection under a *sql.Conn that Lend made. The
// Raw method of *sql.Conn gives a wrapper instead. A panic of f costs the connection. While
// rows or a transaction of the loan are open, f runs on a goroutine of its own.
func Raw(conn *sql.Conn, f func(driverConn any) error) error {
	var broke *callback.Call[struct{}]
	err := conn.Raw(func(wrapper any) error {
		w, ok := wrapper.(interface{ unwrap() *borrowedConn })
		if !ok {
			return f(wrapper)
		}
		l := w.unwrap()
		l.conn.cannotReset.Store(true) // nobody saw what f did
		err := l.raw(f, &broke)
		if err != nil && Broken(err) {
			l.conn.lost.CompareAndSwap(nil, &err)
		}
		return l.hideBadConn(err)
	})
	if broke != nil {
		broke.Resume()
	}
	return err
}

// raw calls f. One that does not return is driver.ErrBadConn to database/sql, which waits for
// what the caller has open then: so it ends in broke, for the caller to go on with.
func (l *borrowedConn) raw(f func(driverConn any) error, broke **callback.Call[struct{}]) error {
	if l.conn.abandonedCall.Load() != nil || !l.conn.calls.begin() { // by which it is used still, or closed
		return l.conn.refusal()
	}
	defer l.conn.calls.end()
	switch {
	case l.openTx.Load() > 0 && l.endable.anyOver(nil):
		return errEndedTx
	case l.unended.Load() != noUnended:
		return errUnendedRaw
	}
	returned := false
	defer func() {
		if !returned {
			lost := errRawBroke
			l.conn.lost.CompareAndSwap(nil, &lost)
		}
	}()
	if l.openRows.Load()+l.openTx.Load() == 0 {
		err := f(l.conn.raw)
		returned = true
		return err
	}
	call := callback.Go(callback.NoValue(func() error { return f(l.conn.raw) }))
	<-call.Done
	if returned = call.Returned; !returned {
		*broke = call
		return errRawBroke
	}
	return call.Err
}
