package rowscan

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// unknownZones are the names of zones that this machine does not know, such as all but UTC where
// there is no database of them. Arrow looks for one again with each value, which takes three hundred
// times what the value does. They are forgotten all at once when there are too many.
var (
	unknownZones     sync.Map // of string
	unknownZoneCount atomic.Int64
)

const maxUnknownZones = 64

// zoneOf is the zone of a timestamp, UTC where this machine does not know it: the instant
// is the same.
func zoneOf(t *arrow.TimestampType) *time.Location {
	if _, unknown := unknownZones.Load(t.TimeZone); unknown {
		return time.UTC
	}
	zone, err := t.GetZone()
	if err == nil {
		return zone
	}
	if !isUnknown(t.TimeZone) {
		return time.UTC
	}
	if unknownZoneCount.Add(1) > maxUnknownZones {
		unknownZones.Clear()
		unknownZoneCount.Store(1)
	}
	unknownZones.Store(t.TimeZone, nil)
	return time.UTC
}

// isUnknown reports whether there is no such zone. One that the system has failed to read, as with too many files open,
// may be there.
func isUnknown(name string) bool {
	_, err := time.LoadLocation(name)
	var failed syscall.Errno
	return err != nil && !errors.As(err, &failed)
}
