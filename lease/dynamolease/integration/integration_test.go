package integration

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/lease/dynamolease"
	"github.com/flightpool/flightpool/lease/fleet"
	"github.com/flightpool/flightpool/lease/leasetest"
	"github.com/flightpool/flightpool/testserver/localdeps"
)

const table = "leases"

var (
	db     *localdeps.DynamoDB
	budget = counter()
)

// counter names budgets, so that tests share a table and nothing else.
func counter() func() string {
	var mu sync.Mutex
	n := 0
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		n++
		return fmt.Sprintf("cluster-%d-%d", os.Getpid(), n)
	}
}

func TestMain(m *testing.M) {
	if endpoint := os.Getenv(memberEndpoint); endpoint != "" {
		beMember(endpoint)
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var err error
	if db, err = localdeps.StartDynamoDB(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for range 2 { // the second time it is there
		if err := dynamolease.CreateTable(ctx, db.Client(), table); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	go func() { // without it nothing here can go on
		<-db.Ended()
		if ctx.Err() == nil {
			panic("the DynamoDB stand-in ended: " + db.Log())
		}
	}()
	code := m.Run()
	cancel()
	db.Close()
	return code
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func open(t *testing.T, client *dynamodb.Client, cfg dynamolease.Config) *dynamolease.Leases {
	t.Helper()
	cfg.Table, cfg.Logger = table, quiet()
	l, err := dynamolease.New(t.Context(), client, cfg)
	require.NoError(t, err)
	return l
}

func TestLeasesConform(t *testing.T) {
	leasetest.Leases(t, func(t *testing.T, limit int) lease.Leases {
		return open(t, db.Client(), dynamolease.Config{Budget: budget(), Limit: limit})
	})
}

func TestLimiterConforms(t *testing.T) {
	leasetest.Limiter(t, func(t *testing.T, rate float64, burst int) lease.Limiter {
		l, err := dynamolease.NewLimiter(t.Context(), db.Client(), dynamolease.LimiterConfig{
			Table: table, Budget: budget(), Rate: rate, Burst: burst, Logger: quiet(),
		})
		require.NoError(t, err)
		return l
	})
}

func TestTheLimitHoldsThroughABadNetwork(t *testing.T) {
	const limit, members = 20, 4
	name := budget()
	proxy := localdeps.StartProxy(db.Endpoint)
	defer proxy.Close()
	var fleet []*dynamolease.Leases
	for range members {
		fleet = append(fleet, open(t, localdeps.ClientFor(proxy.URL), dynamolease.Config{
			Budget: name, Limit: limit, Batch: 2, RequestTimeout: 250 * time.Millisecond, Shards: 2,
		}))
	}
	proxy.Set(localdeps.Faults{
		LoseRequest: 0.05, LoseReply: 0.1, Duplicate: 0.2, Throttle: 0.05, Conflict: 0.05,
		Delay: 10 * time.Millisecond, DuplicateAfter: 300 * time.Millisecond,
	})
	var mu sync.Mutex
	inUse, most := 0, 0
	var callers errgroup.Group
	for i := range members * 10 {
		callers.Go(func() error {
			for range 40 {
				release, err := fleet[i%members].Acquire(t.Context())
				if err != nil {
					return err
				}
				mu.Lock()
				inUse++
				most = max(most, inUse)
				mu.Unlock()
				hold := time.NewTimer(5 * time.Millisecond)
				<-hold.C
				mu.Lock()
				inUse--
				mu.Unlock()
				release()
			}
			return nil
		})
	}
	require.NoError(t, callers.Wait())
	require.LessOrEqual(t, most, limit)
	proxy.Set(localdeps.Faults{})
	for _, l := range fleet {
		require.NoError(t, l.Close(t.Context()))
	}
	last := open(t, db.Client(), dynamolease.Config{Budget: name, Limit: limit, Shards: 2})
	require.Zero(t, last.Stats().Used, "nothing is left behind")
	require.NoError(t, last.Close(t.Context()))
	counts := proxy.Counts()
	t.Logf("%v", counts)
	require.Greater(t, counts["lost"]+counts["unanswered"]+counts["duplicated"]+counts["throttled"]+counts["conflicting"], 10)
}

const (
	memberEndpoint = "LEASE_MEMBER_ENDPOINT"
	memberBudget   = "LEASE_MEMBER_BUDGET"
)

// beMember takes five leases and keeps them until it is killed.
func beMember(endpoint string) {
	ctx := context.Background()
	l, err := dynamolease.New(ctx, localdeps.ClientFor(endpoint), short(os.Getenv(memberBudget)))
	for range 5 {
		if err == nil {
			_, err = l.Acquire(ctx)
		}
	}
	fmt.Println("holding", err)
	select {}
}

func short(budget string) dynamolease.Config {
	return dynamolease.Config{
		Table: table, Budget: budget, Limit: 6, Lease: 4 * time.Second, Grace: time.Second,
		OpenTimeout: 500 * time.Millisecond, RequestTimeout: 300 * time.Millisecond, Logger: quiet(),
	}
}

func TestLeasesOfAKilledProcessAreBackWithinLeaseAndGrace(t *testing.T) {
	cfg := short(budget())
	self, err := os.Executable()
	require.NoError(t, err)
	member := exec.CommandContext(t.Context(), self)
	member.Env = append(os.Environ(), memberEndpoint+"="+db.Endpoint, memberBudget+"="+cfg.Budget)
	out, err := member.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, member.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "holding <nil>\n", line)

	l, err := dynamolease.New(t.Context(), db.Client(), cfg)
	require.NoError(t, err)
	first, err := l.Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, member.Process.Kill())
	killed := time.Now()
	require.Error(t, member.Wait())
	second, err := l.Acquire(t.Context())
	require.NoError(t, err)
	// The exact bound holds in virtual time; here the machine may be busy.
	require.Less(t, time.Since(killed), cfg.Lease+cfg.Grace+2*time.Second)
	t.Logf("back after %v", time.Since(killed).Round(10*time.Millisecond))
	first()
	second()
	require.NoError(t, l.Close(t.Context()))
}

func TestWrongTablesAreToldByTheSetting(t *testing.T) {
	_, err := dynamolease.New(t.Context(), db.Client(), dynamolease.Config{Table: "missing", Budget: "b", Limit: 1, Logger: quiet()})
	var wrong *dynamolease.ConfigError
	require.ErrorAs(t, err, &wrong)
	require.ErrorContains(t, err, `Config.Table: table "missing" does not exist in region "us-east-1"`)
	_, err = dynamolease.NewLimiter(t.Context(), db.Client(), dynamolease.LimiterConfig{Table: "missing", Budget: "b", Logger: quiet()})
	require.ErrorContains(t, err, `LimiterConfig.Table: table "missing" does not exist`)
}

func TestATableThatDoesNotAnswerLeavesItToTheFallback(t *testing.T) {
	proxy := localdeps.StartProxy(db.Endpoint)
	defer proxy.Close()
	proxy.Set(localdeps.Faults{Outage: true})
	l := open(t, localdeps.ClientFor(proxy.URL), dynamolease.Config{Budget: budget(), Limit: 5})
	_, err := l.Acquire(t.Context())
	require.ErrorIs(t, err, lease.ErrUnavailable)
	proxy.Set(localdeps.Faults{})
	for errors.Is(err, lease.ErrUnavailable) {
		var release func()
		if release, err = l.Acquire(t.Context()); err == nil {
			release()
		}
	}
	require.NoError(t, err)
	require.NoError(t, l.Close(t.Context()))
}

func TestSetLimitReachesARunningFleet(t *testing.T) {
	name := budget()
	l := open(t, db.Client(), dynamolease.Config{Budget: name, Limit: 2, Batch: 1})
	for range 2 {
		release, err := l.Acquire(t.Context())
		require.NoError(t, err)
		defer release()
	}
	store, err := dynamolease.NewStore(db.Client(), table)
	require.NoError(t, err)
	require.NoError(t, fleet.SetLimit(t.Context(), store, name, 3))
	release, err := l.Acquire(t.Context())
	require.NoError(t, err)
	release()
	require.ErrorContains(t, fleet.SetLimit(t.Context(), store, "nobody's", 3), `budget "nobody's"`)
	other := open(t, db.Client(), dynamolease.Config{Budget: name, Limit: 2})
	require.Equal(t, 3, other.Stats().Limit, "the table's, whatever is configured")
	require.NoError(t, other.Close(t.Context()))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, l.Close(ended), lease.ErrInUse)
}
