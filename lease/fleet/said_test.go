package fleet

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/internal/option/optiontest"
)

// The comments of the configurations say each default as the code has it.
func TestTheDefaultsThatAreSaidHold(t *testing.T) {
	c := Config{Budget: "b", Limit: 100}
	require.NoError(t, c.validate())
	optiontest.Hold(t, optiontest.Said(t, "config.go", "Config"), c, "Limit", "Shards")
	l := LimiterConfig{Budget: "b"}
	require.NoError(t, l.validate())
	optiontest.Hold(t, optiontest.Said(t, "config.go", "LimiterConfig"), l, "Tick")
}
