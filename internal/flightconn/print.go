package flightconn

import "fmt"

// String names the server; the connection's credentials are not shown.
func (c *Conn) String() string { return "connection to " + c.target() }

// Format prints String under every verb, where fmt would walk into the fields.
func (c *Conn) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(c.String())) }
