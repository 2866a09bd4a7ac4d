package rowscan

import (
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"
)

// A zone that could not be read, since the process had too many files open, is not one that this machine does not know.
func TestAZoneThatCouldNotBeReadIsLookedForAgain(t *testing.T) {
	const name = "Indian/Chagos" // of no other test
	_, err := time.LoadLocation(name)
	require.NoError(t, err, "the zones of the machine, or of Go")
	zone := func() string { return zoneOf(&arrow.TimestampType{Unit: arrow.Second, TimeZone: name}).String() }
	var before syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: before.Max}))
	without := zone()
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before))
	require.Equal(t, "UTC", without)
	require.Equal(t, name, zone())
}
