package dynamolease

import (
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/lease/fleet"
	"github.com/flightpool/flightpool/lease/fleet/fleettest"
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

// DynamoDB's expressions must mean what Change says: random changes have the
// same answers in a table as in memory.
func TestTheTableMeansWhatChangesSay(t *testing.T) {
	fleettest.Store(t, 200, func(_ *testing.T, seed uint64) fleet.Store {
		db := newFakeDB()
		db.oldish = seed%2 == 1
		return newStore(&fakeClient{db}, "t", "Config")
	})
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

// What DynamoDB leaves out of a batch is read by a further one, and nothing is read
// twice. A batch of which it answers nothing is an error.
func TestWhatABatchLeavesOutIsReadOnce(t *testing.T) {
	db := newFakeDB()
	s := newStore(&fakeClient{db}, "t", "Config")
	var keys []string
	for i := range batchKeys + 5 {
		keys = append(keys, fmt.Sprint(i))
		if i%2 == 0 {
			_, err := s.Write(t.Context(), fleet.Change{Key: keys[i], Absent: true, Set: map[string]int64{"n": int64(i)}})
			require.NoError(t, err)
		}
	}
	for _, answers := range []int{7, 1, batchKeys} {
		db.batchAnswers, db.batchReads = &answers, 0
		found, err := s.Read(t.Context(), keys...)
		require.NoError(t, err)
		require.Len(t, found.Records, (len(keys)+1)/2)
		require.EqualValues(t, 104, found.Records["104"].Numbers["n"])
		require.Equal(t, len(keys), db.batchReads)
	}
	db.batchAnswers = new(int)
	_, err := s.Read(t.Context(), keys...)
	require.ErrorIs(t, err, errNothingRead)
}
