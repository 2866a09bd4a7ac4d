package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease/dynamolease"
	"github.com/flightpool/flightpool/lease/fleet"
)

// An introduction waits until a process has written who it is.
type introduction struct {
	*dynamolease.Store
	once sync.Once
	made chan struct{}
}

func (i *introduction) Write(ctx context.Context, c fleet.Change) (fleet.Answer, error) {
	answer, err := i.Store.Write(ctx, c)
	if err == nil && strings.HasPrefix(c.Key, "member#") {
		i.once.Do(func() { close(i.made) })
	}
	return answer, err
}

// join joins a budget as a process of a service, with so many connections.
// It returns a function that waits until the store knows who that is.
func join(t *testing.T, budget, service string, limit, uses int) (wait func()) {
	t.Helper()
	known := &introduction{Store: inDynamoDB(t), made: make(chan struct{})}
	l, err := fleet.New(t.Context(), known, fleet.Config{
		Budget: budget, Limit: limit, Lease: 20 * time.Second, Batch: 1, Service: service, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	var releases []func()
	for range uses {
		release, err := l.Acquire(t.Context())
		require.NoError(t, err)
		releases = append(releases, release)
	}
	t.Cleanup(func() {
		for _, release := range releases {
			release()
		}
		_ = l.Close(t.Context()) // its context has ended
	})
	return func() { <-known.made }
}

func inDynamoDB(t *testing.T) *dynamolease.Store {
	t.Helper()
	s, err := dynamolease.NewStore(db.Client(), table)
	require.NoError(t, err)
	return s
}

// held writes a budget of which a process ORDERS holds leases.
func held(t *testing.T, budget string, leases int64) {
	t.Helper()
	fill(t, inDynamoDB(t), budget, 20, 0, process{id: "ORDERS", host: "web-1", service: "orders", pid: 1, leases: leases})
}

// at names the table of the tests, and a budget.
func at(budget string, args ...string) []string {
	return append(args, "--endpoint", db.Endpoint, "--table", table, "--budget", budget)
}

func shown(t *testing.T, budget string) budgetView {
	t.Helper()
	r := ctl(t, "", nil, at(budget, "show", "--json", "--sample", "0")...)
	require.Zero(t, r.code, r.err)
	var v view
	require.NoError(t, json.Unmarshal([]byte(r.out), &v))
	require.Len(t, v.Budgets, 1)
	return v.Budgets[0]
}

func TestShowTellsWhoHoldsWhat(t *testing.T) {
	orders, billing := join(t, "who", "orders", 20, 5), join(t, "who", "billing", 20, 3)
	orders()
	billing()
	host, err := os.Hostname()
	require.NoError(t, err)
	b := shown(t, "who")
	require.Equal(t, 20, b.Limit)
	require.Len(t, b.Members, 2)
	has := map[string]int{}
	for _, m := range b.Members {
		require.Equal(t, host, m.Host)
		require.Equal(t, os.Getpid(), m.PID)
		require.NotNil(t, m.AgeSeconds)
		require.LessOrEqual(t, m.RoundsBehind, int64(1))
		has[m.Service] = m.Leases
	}
	require.GreaterOrEqual(t, has["orders"], 5)
	require.GreaterOrEqual(t, has["billing"], 3)
	require.Equal(t, b.Used, has["orders"]+has["billing"])
	require.Nil(t, b.Share)
	require.Nil(t, b.PermitsPerSecond)

	r := ctl(t, "", []string{tableVariable + "=" + table, "AWS_ENDPOINT_URL_DYNAMODB=" + db.Endpoint}, "show", "--sample", "0")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, "DynamoDB table leases in us-east-1")
	require.Contains(t, r.out, "budget who: ")
	require.Regexp(t, b.Members[0].ID+` +`+host, r.out)
}

func TestAllBudgetsOfATableAreListed(t *testing.T) {
	held(t, "list-a", 1)
	held(t, "list-b", 2)
	names, err := inDynamoDB(t).Budgets(t.Context())
	require.NoError(t, err)
	require.Subset(t, names, []string{"list-a", "list-b"})
	require.True(t, slices.IsSorted(names))

	r := ctl(t, "", nil, "show", "--endpoint", db.Endpoint, "--table", table, "--json", "--sample", "0")
	require.Zero(t, r.code, r.err)
	var v view
	require.NoError(t, json.Unmarshal([]byte(r.out), &v))
	var listed []string
	for _, b := range v.Budgets {
		listed = append(listed, b.Budget)
	}
	require.Subset(t, listed, []string{"list-a", "list-b"})

	r = ctl(t, "", nil, "limit", "25", "--endpoint", db.Endpoint, "--table", table)
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, "name one by --budget")
	require.Contains(t, r.err, "list-a, list-b")
}

// A gate refuses operations on their way to DynamoDB.
func gate(t *testing.T, refuse map[string]string) string {
	t.Helper()
	target, err := url.Parse(db.Endpoint)
	require.NoError(t, err)
	through := httputil.NewSingleHostReverseProxy(target)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		operation := r.Header.Get("X-Amz-Target")
		operation = operation[strings.LastIndexByte(operation, '.')+1:]
		answer, refused := refuse[operation]
		if !refused {
			answer, refused = refuse["*"]
		}
		if !refused {
			through.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(answer)) // the command sees what is missing
	}))
	t.Cleanup(server.Close)
	return server.URL
}

const accessDenied = `{"__type":"com.amazon.coral.service#AccessDeniedException","message":"User: arn:aws:iam::1:user/ann is not authorized"}`

func TestReadOnlyCredentialsSufficeForReading(t *testing.T) {
	held(t, "readonly", 2)
	readOnly := gate(t, map[string]string{"UpdateItem": accessDenied, "PutItem": accessDenied, "DeleteItem": accessDenied, "DescribeTable": accessDenied})
	args := func(args ...string) []string {
		return append(args, "--endpoint", readOnly, "--table", table, "--budget", "readonly")
	}
	r := ctl(t, "", nil, args("show", "--sample", "0")...)
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, "budget readonly: ")

	before := shown(t, "readonly")
	for _, changes := range [][]string{{"limit", "30"}, {"free", before.Members[0].ID, "--yes"}} {
		r = ctl(t, "", nil, args(changes...)...)
		require.Equal(t, exitDenied, r.code, r.err)
		require.Contains(t, r.err, "dynamodb:UpdateItem")
	}
	require.Equal(t, 20, shown(t, "readonly").Limit)

	noScan := gate(t, map[string]string{"Scan": accessDenied})
	r = ctl(t, "", nil, "show", "--endpoint", noScan, "--table", table)
	require.Equal(t, exitDenied, r.code)
	require.Contains(t, r.err, "dynamodb:Scan")
}

func TestTheLimitIsChanged(t *testing.T) {
	held(t, "limit", 6)
	r := ctl(t, "", nil, at("limit", "limit", "3")...)
	require.Equal(t, exitRefused, r.code)
	require.Contains(t, r.err, "leases that are held")
	require.Equal(t, 20, shown(t, "limit").Limit)

	r = ctl(t, "", nil, at("limit", "limit", "50")...)
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, "the limit is 50, was 20")
	require.Equal(t, 50, shown(t, "limit").Limit)

	r = ctl(t, "", nil, at("limit", "limit", "3", "--force", "--json")...)
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, `"limit_before":50,"limit":3,`)
	require.Equal(t, 3, shown(t, "limit").Limit)
}

func TestLeasesAreFreedOnceConfirmed(t *testing.T) {
	fill(t, inDynamoDB(t), "free", 20, 0, process{id: "ORDERS", leases: 4}, process{id: "GONE", leases: 7, behind: 3})
	for input, says := range map[string]string{"": "nobody confirmed", "no\n": "not confirmed", "y\n": "not confirmed"} {
		r := ctl(t, input, nil, at("free", "free", "GONE")...)
		require.Equal(t, exitRefused, r.code)
		require.Contains(t, r.err, says)
		require.Contains(t, r.err, "it is 3 rounds behind")
		require.Contains(t, r.err, "If it lives")
		require.Len(t, shown(t, "free").Members, 2)
	}
	r := ctl(t, "yes\n", nil, at("free", "free", "GONE")...)
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, "7 leases of process GONE were freed")
	b := shown(t, "free")
	require.Len(t, b.Members, 1)
	require.Equal(t, 4, b.Used)

	r = ctl(t, "", nil, at("free", "free", "ORDERS", "--yes", "--json")...)
	require.Zero(t, r.code, r.err)
	require.JSONEq(t, `{"budget":"free","id":"ORDERS","freed":4}`, r.out)
	require.Empty(t, shown(t, "free").Members)
}

func TestErrorsSayWhatToDo(t *testing.T) {
	held(t, "errors", 1)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts and never answers
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() }) // nobody waits for it
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	wrongSignature := gate(t, map[string]string{"*": `{"__type":"com.amazon.coral.service#InvalidSignatureException","message":` +
		`"The request signature we calculated does not match the signature you provided.\n\nThe Canonical String for this request should have been\n'POST\n/\n\nx-amz-security-token:` + token + `\n'"}`})
	// All pauses between the attempts take 1.55 s: the time is over in one of them.
	throttled := gate(t, map[string]string{"*": `{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException","message":"slow down"}`})
	const stranger = "postgres://operator:" + secret + "@db/ops" // where nobody asks for it
	for name, c := range map[string]struct {
		env  []string
		args []string
		code int
		says []string
	}{
		"no table named":    {nil, []string{"show"}, exitUsage, []string{"--table", tableVariable}},
		"no region":         {[]string{"AWS_REGION="}, []string{"show", "--table", table}, exitUsage, []string{"--region", "AWS_REGION"}},
		"no such profile":   {nil, []string{"show", "--table", table, "--profile", "nobody"}, exitFailure, []string{"nobody"}},
		"no such table":     {nil, []string{"show", "--endpoint", db.Endpoint, "--table", "other"}, exitMissing, []string{`table "other" does not exist in region "us-east-1"`}},
		"no such budget":    {nil, []string{"show", "--endpoint", db.Endpoint, "--table", table, "-b", "other"}, exitMissing, []string{`budget "other"`, "no budget of that name"}},
		"no such process":   {nil, at("errors", "free", "NOBODY", "--yes"), exitMissing, []string{`no process "NOBODY"`, "show"}},
		"unknown flag":      {nil, []string{"show", "--tabel", "x"}, exitUsage, []string{"--tabel"}},
		"password as flag":  {nil, []string{"show", "-p" + secret}, exitUsage, []string{"unknown flag: -p"}},
		"flag without name": {nil, []string{"show", "--=" + secret}, exitUsage, []string{"bad flag syntax"}},
		"unknown command":   {nil, []string{"shwo"}, exitUsage, []string{"did you mean show?"}},
		"string in front":   {nil, []string{stranger, "show"}, exitUsage, []string{"no such command"}},
		"string of show":    {nil, []string{"show", stranger}, exitUsage, []string{"show takes no argument and was given 1", "--postgres"}},
		"string as limit":   {nil, []string{"limit", stranger}, exitUsage, []string{"whole number"}},
		"string and limit":  {nil, []string{"limit", "7", stranger}, exitUsage, []string{"takes one argument and was given 2"}},
		"string and free":   {nil, []string{"free", stranger, "ID"}, exitUsage, []string{"takes one argument and was given 2"}},
		"string as table":   {nil, []string{"show", "--table", stranger}, exitUsage, []string{"--postgres"}},
		"string as free":    {nil, at("errors", "free", stranger), exitMissing, []string{"no process of that name", "show"}},
		"no limit":          {nil, at("errors", "limit"), exitUsage, []string{"limit takes one argument and was given 0: the limit"}},
		"limit no number":   {nil, at("errors", "limit", "many"), exitUsage, []string{"whole number"}},
		"limit zero":        {nil, at("errors", "limit", "0"), exitUsage, []string{"whole number"}},
		"limit too large":   {nil, at("errors", "limit", "2147483648"), exitUsage, []string{"from 1 to 2147483647"}},
		"no time":           {nil, at("errors", "show", "--timeout", "0s"), exitUsage, []string{"--timeout"}},
		"watch backwards":   {nil, at("errors", "show", "--watch", "-1s"), exitUsage, []string{"--watch"}},
		"nobody listens":    {nil, []string{"show", "--endpoint", "http://" + closed.Addr().String(), "--table", table}, exitUnknown, []string{"connection refused"}},
		"nobody answers":    {nil, []string{"show", "--endpoint", "http://" + silent.Addr().String(), "--table", table, "--timeout", "200ms"}, exitUnknown, []string{"deadline exceeded"}},
		"throttled":         {nil, []string{"show", "--endpoint", throttled, "--table", table, "--timeout", "1400ms"}, exitUnknown, []string{"slow down"}},
		"no credentials":    {[]string{"AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY="}, at("errors", "show"), exitDenied, []string{"credentials"}},
		"wrong signature":   {nil, []string{"show", "--endpoint", wrongSignature, "--table", table}, exitDenied, []string{"does not match"}},
		"a password in URL": {nil, []string{"show", "--endpoint", "http://ann:" + secret + "@" + closed.Addr().String(), "--table", table, "--timeout", "100ms"}, exitUnknown, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := ctl(t, "", c.env, c.args...)
			require.Equal(t, c.code, r.code, r.err)
			require.Empty(t, r.out)
			require.True(t, strings.HasPrefix(r.err, "leasectl: "), r.err)
			require.LessOrEqual(t, strings.Count(r.err, "\n"), 2, r.err)
			for _, s := range c.says {
				require.Contains(t, r.err, s)
			}
			require.NotContains(t, r.err, secret)
			require.NotContains(t, r.err, token)
		})
	}
}

var _ store = (*dynamolease.Store)(nil)
