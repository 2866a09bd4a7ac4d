package flightconn

import (
	"fmt"

	"github.com/flightpool/flightpool/internal/printing"
)

// String names the server; the connection's credentials are not shown.
func (c *Conn) String() string { return "connection to " + c.target() }

// Format prints String under every verb, where fmt would walk into the fields.
func (c *Conn) Format(f fmt.State, _ rune) { printing.Format(f, c.String()) }
