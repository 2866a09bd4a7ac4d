package adbcpool

import (
	"fmt"
	"io"
)

// What is given out as interfaces of ADBC prints its name, under every verb: fmt would
// walk into headers, in which credentials stand, and into texts of statements.

func (*database) Format(f fmt.State, _ rune)   { _, _ = io.WriteString(f, "adbcpool database") }
func (*connection) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "adbcpool connection") }
func (*statement) Format(f fmt.State, _ rune)  { _, _ = io.WriteString(f, "adbcpool statement") }
