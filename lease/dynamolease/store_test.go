package dynamolease

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/lease/fleet"
	"github.com/flightpool/flightpool/lease/leasetest"
)

func TestLeasesConform(t *testing.T) {
	leasetest.Leases(t, func(t *testing.T, limit int) lease.Leases {
		l, err := fleet.New(t.Context(), newStore(&fakeClient{newFakeDB()}, "t", "Config"), Config{Budget: "b", Limit: limit, Shards: 2})
		require.NoError(t, err)
		return l
	})
}

func TestLimiterConforms(t *testing.T) {
	leasetest.Limiter(t, func(t *testing.T, rate float64, burst int) lease.Limiter {
		l, err := fleet.NewLimiter(t.Context(), newStore(&fakeClient{newFakeDB()}, "t", "LimiterConfig"), LimiterConfig{
			Budget: "b", Rate: rate, Burst: burst,
		})
		require.NoError(t, err)
		return l
	})
}

// randomChange is a change of few names and values, so that many conditions
// hold and many do not.
func randomChange(rng *rand.Rand, seq int64) fleet.Change {
	small := func() int64 { return int64(rng.IntN(4)) }
	c := fleet.Change{Key: fmt.Sprint("key", rng.IntN(2))}
	ids := []string{"A1", "B2", "C3"}
	id := ids[rng.IntN(len(ids))]
	entry := fleet.Owner{Leases: small(), Seq: seq, Round: small(), Want: small(), Kept: small()}
	switch rng.IntN(6) {
	case 0:
		c.Absent, c.Set = true, map[string]int64{"used": small(), "round": 1}
		if rng.IntN(2) == 0 {
			c.Put = map[string]fleet.Owner{id: entry}
		}
	case 1:
		c.Equal, c.Set = map[string]int64{"round": 1 + small()}, map[string]int64{"round": small(), "limit": small()}
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
	}
	return c
}

// DynamoDB's expressions must mean what Change says: random changes have the
// same answers in a table as in memory.
func TestTheTableMeansWhatChangesSay(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		db := newFakeDB()
		db.oldish = seed%2 == 1
		table, memory := newStore(&fakeClient{db}, "t", "Config"), fleet.NewMemory()
		for seq := range int64(120) {
			c := randomChange(rng, seq)
			want, err := memory.Write(t.Context(), c)
			require.NoError(t, err)
			got, err := table.Write(t.Context(), c)
			require.NoError(t, err, "%+v", c)
			require.Equal(t, want.Done, got.Done, "seed %d: %+v", seed, c)
			require.Equal(t, want.Record, got.Record, "seed %d: %+v", seed, c)
		}
		want, err := memory.Read(t.Context(), "key0", "key1", "free", "none")
		require.NoError(t, err)
		got, err := table.Read(t.Context(), "key0", "key1", "free", "none")
		require.NoError(t, err)
		require.Equal(t, want, got)
		one, err := table.Read(t.Context(), "none")
		require.NoError(t, err)
		require.Empty(t, one.Records)
	}
}

type apiError struct{ code, message string }

func (e apiError) Error() string                 { return e.code + ": " + e.message }
func (e apiError) ErrorCode() string             { return e.code }
func (e apiError) ErrorMessage() string          { return e.message }
func (e apiError) ErrorFault() smithy.ErrorFault { return smithy.FaultClient }

func TestAnswersThatNoRetryWillChangeNameTheSetting(t *testing.T) {
	s := newStore(&fakeClient{newFakeDB()}, "leases", "Config")
	for _, v := range []struct {
		err  error
		text string // empty: it may pass
	}{
		{&types.ResourceNotFoundException{}, `Config.Table: table "leases" does not exist`},
		{apiError{"AccessDeniedException", "no"}, "dynamodb:BatchGetItem"},
		{apiError{"ExpiredTokenException", "old"}, "credentials"},
		{apiError{"ValidationException", "The provided key element does not match the schema"}, `single string key "pk"`},
		{apiError{"ValidationException", "Item size to update has exceeded the maximum allowed size"}, ""},
		{apiError{"ThrottlingException", "slow down"}, ""},
	} {
		err := s.explain(v.err)
		var wrong *ConfigError
		if v.text == "" {
			require.NotErrorAs(t, err, &wrong)
			continue
		}
		require.ErrorAs(t, err, &wrong)
		require.ErrorContains(t, err, v.text)
		require.ErrorIs(t, err, v.err)
		require.True(t, wrong.Permanent())
	}
}

func TestBudgetsAreListedFromAllPages(t *testing.T) {
	db := newFakeDB()
	for _, key := range []string{"budget#b", "budget#a#1", "budget#c", "member#b#budget#x", "rate#b", "shard#b#0", "zoo"} {
		db.items[key] = keyOf(key)
	}
	names, err := newStore(&fakeClient{db}, "t", "Config").Budgets(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"a#1", "b", "c"}, names)
}
