// Package fleettest holds what every fleet.Store must do, whatever it keeps its
// records in.
package fleettest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease/fleet"
)

// Store makes random changes in the stores that open returns, which must be
// empty, one for each seed, and requires the answers and the records that
// fleet.Memory has.
func Store(t *testing.T, seeds uint64, open func(t *testing.T, seed uint64) fleet.Store) {
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 1))
		store, memory := open(t, seed), fleet.NewMemory()
		for seq := range int64(120) {
			c := RandomChange(rng, seq)
			want, err := memory.Write(t.Context(), c)
			require.NoError(t, err)
			got, err := store.Write(t.Context(), c)
			require.NoError(t, err, "seed %d: %+v", seed, c)
			require.Equal(t, want.Done, got.Done, "seed %d: %+v", seed, c)
			require.Equal(t, want.Record, got.Record, "seed %d: %+v", seed, c)
		}
		want, err := memory.Read(t.Context(), "key0", "key1", "free", "none")
		require.NoError(t, err)
		got, err := store.Read(t.Context(), "key0", "key1", "free", "none")
		require.NoError(t, err)
		require.Equal(t, want.Records, got.Records, "seed %d", seed)
		none, err := store.Read(t.Context(), "none")
		require.NoError(t, err)
		require.Empty(t, none.Records)
	}
}

// RandomChange is a change of few names and values, so that many conditions
// hold and many do not. seq is the sequence number of the entry that it puts:
// give each change a higher one.
func RandomChange(rng *rand.Rand, seq int64) fleet.Change {
	small := func() int64 { return int64(rng.IntN(4)) }
	c := fleet.Change{Key: fmt.Sprint("key", rng.IntN(2))}
	ids := []string{"A1", "B2", "it's \\ \"C\"\n"}
	id := ids[rng.IntN(len(ids))]
	entry := fleet.Owner{Leases: small(), Seq: seq, Round: small(), Want: small(), Kept: small()}
	switch rng.IntN(6) {
	case 0:
		c.Absent, c.Set = true, map[string]int64{"used": small(), "round": 1}
		if rng.IntN(2) == 0 {
			c.Put = map[string]fleet.Owner{id: entry}
		}
	case 1:
		c.Equal, c.Set = map[string]int64{"round": 1 + small()}, map[string]int64{"round": small(), "limit": 1<<62 + small()}
	case 2:
		c.NoOwner, c.Put = id, map[string]fleet.Owner{id: entry}
		c.AtMost, c.Add = map[string]int64{"used": small()}, map[string]int64{"used": entry.Leases}
	case 3:
		c.OwnerAt = map[string]int64{id: seq - 1 - small()}
		c.Put, c.Text = map[string]fleet.Owner{id: entry}, map[string]string{"host": id}
	case 4:
		c.OwnerAt = map[string]int64{id: seq - 1 - small()}
		c.Remove, c.AtMost, c.Add = []string{id}, map[string]int64{"used": 9}, map[string]int64{"used": -small()}
	default:
		c.Key, c.Text, c.Set = "free", map[string]string{"name": id}, map[string]int64{"pid": small()}
		c.Expires = time.Now().Add(time.Hour)
	}
	return c
}
