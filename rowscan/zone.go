package rowscan

import (
	"sync"
	"sync/atomic"
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
	if unknownZoneCount.Add(1) > maxUnknownZones {
		unknownZones.Clear()
		unknownZoneCount.Store(1)
	}
	unknownZones.Store(t.TimeZone, nil)
	return time.UTC
}
