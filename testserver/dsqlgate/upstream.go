package dsqlgate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// connectUpstream opens the connection behind the gateway, in DSQL's isolation.
// greeting is what PostgreSQL said, up to ReadyForQuery; the connection has
// nothing more to read. (A hijacked pgconn may have: after a slow write it goes
// on reading in the background.)
func (g *Gate) connectUpstream(ctx context.Context, params map[string]string) (_ net.Conn, greeting []byte, err error) {
	network, address := pgconn.NetworkAddress(g.upstream.Host, g.upstream.Port)
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends the reading below
	defer func() {
		if !stop() && err == nil {
			err = ctx.Err()
		}
		if err != nil {
			_ = conn.Close() // err matters
		}
	}()
	startup := pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: map[string]string{}}
	maps.Copy(startup.Parameters, g.upstream.RuntimeParams)
	maps.Copy(startup.Parameters, params)
	startup.Parameters["user"], startup.Parameters["database"] = g.upstream.User, g.upstream.Database
	startup.Parameters["default_transaction_isolation"] = "repeatable read"
	out, err := startup.Encode(nil)
	if err != nil {
		return nil, nil, err
	}
	if _, err := conn.Write(out); err != nil {
		return nil, nil, err
	}
	greeting, err = awaitReady(bufio.NewReader(conn))
	return conn, greeting, err
}

// awaitReady reads the messages of a login that asks for no password.
func awaitReady(in *bufio.Reader) (all []byte, err error) {
	for {
		kind, body, err := readMessage(in, nil, maxStartup)
		if err != nil {
			return nil, err
		}
		switch {
		case kind == 'E':
			var e pgproto3.ErrorResponse
			if err := e.Decode(body); err != nil {
				return nil, err
			}
			return nil, fmt.Errorf("%s (%s)", e.Message, e.Code)
		case kind == 'R' && (len(body) != 4 || [4]byte(body) != [4]byte{}):
			return nil, errors.New("the PostgreSQL behind the gateway must trust it")
		}
		all = appendMessage(all, kind, body)
		if kind == 'Z' {
			return all, nil
		}
	}
}
