package dynamolease

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// fakeDB has DynamoDB's semantics for single items: a write is atomic, and
// all writes of an item have one order. Expressions are really evaluated, so
// that the product's own are under test. Package integration runs the same
// against a service.
type fakeDB struct {
	mu     sync.Mutex
	items  map[string]item
	onPut  func(key string, it item) // sees every write, in order
	oldish bool                      // do not return the old item with a failed condition
	outage time.Time                 // nobody reaches the table until then
	bill   map[string]int            // write units by kind of item (alloc, sess, rate), failed conditions included
	bulk   int                       // size of the largest allocation item ever
}

func newFakeDB() *fakeDB { return &fakeDB{items: map[string]item{}, bill: map[string]int{}} }

// faults are what a client's requests meet. Probabilities are per request.
type faults struct {
	lostRequest, lostReply, throttle, duplicate float64
	delay, duplicateDelay                       time.Duration // upper bounds
}

// fakeClient is one process's way to the fake.
type fakeClient struct {
	db     *fakeDB
	mu     sync.Mutex
	rng    *rand.Rand
	faults faults
	outage time.Time // requests are lost until then
	paused time.Time // the process stands still until then
	dead   bool
}

func newFakeClient(db *fakeDB, rng *rand.Rand, f faults) *fakeClient {
	return &fakeClient{db: db, rng: rng, faults: f}
}

func (c *fakeClient) set(f func(c *fakeClient)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c)
}

var errThrottled = &types.ProvisionedThroughputExceededException{}

// trip is one request and its reply, with all that can happen on the way.
func trip[T any](ctx context.Context, c *fakeClient, apply func() (T, error)) (T, error) {
	var zero T
	if err := c.unpaused(ctx); err != nil {
		return zero, err
	}
	c.db.mu.Lock()
	down := time.Now().Before(c.db.outage)
	c.db.mu.Unlock()
	c.mu.Lock()
	f, rng, dead, out := c.faults, c.rng, c.dead, down || time.Now().Before(c.outage)
	there, back := upTo(rng, f.delay/2), upTo(rng, f.delay/2)
	lost, lostReply := rng.Float64() < f.lostRequest, rng.Float64() < f.lostReply
	throttled, duplicated := rng.Float64() < f.throttle, rng.Float64() < f.duplicate
	again := upTo(rng, f.duplicateDelay)
	c.mu.Unlock()
	switch {
	case dead || out || lost:
		<-ctx.Done()
		return zero, ctx.Err()
	case throttled:
		return zero, errThrottled
	}
	time.Sleep(there)
	value, err := apply()
	if duplicated {
		go func() {
			time.Sleep(again)
			_, _ = apply()
		}()
	}
	if lostReply {
		<-ctx.Done()
		return zero, ctx.Err()
	}
	time.Sleep(back)
	if waitErr := c.unpaused(context.WithoutCancel(ctx)); waitErr != nil {
		return zero, waitErr
	}
	return value, err
}

func (c *fakeClient) unpaused(ctx context.Context) error {
	c.mu.Lock()
	left := time.Until(c.paused)
	c.mu.Unlock()
	if left > 0 && !pause(ctx, left, nil) {
		return ctx.Err()
	}
	return nil
}

func upTo(rng *rand.Rand, d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(rng.Int64N(int64(d)))
}

func (c *fakeClient) GetItem(ctx context.Context, in *dynamodb.GetItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	key := keyText(in.Key)
	return trip(ctx, c, func() (*dynamodb.GetItemOutput, error) {
		c.db.mu.Lock()
		defer c.db.mu.Unlock()
		return &dynamodb.GetItemOutput{Item: c.db.items[key]}, nil
	})
}

func (c *fakeClient) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	return trip(ctx, c, func() (*dynamodb.UpdateItemOutput, error) { return c.db.update(in) })
}

func (db *fakeDB) update(in *dynamodb.UpdateItemInput) (*dynamodb.UpdateItemOutput, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	key := keyText(in.Key)
	old := db.items[key]
	e := evaluation{it: old, names: in.ExpressionAttributeNames, values: in.ExpressionAttributeValues}
	if !e.condition(*in.ConditionExpression) {
		db.charge(key, sizeOf(old))
		failed := &types.ConditionalCheckFailedException{}
		if !db.oldish {
			failed.Item = old
		}
		return nil, failed
	}
	fresh := maps.Clone(old)
	if fresh == nil {
		fresh = maps.Clone(in.Key)
	}
	if err := e.update(*in.UpdateExpression, fresh); err != nil {
		return nil, err
	}
	db.items[key] = fresh
	db.charge(key, max(sizeOf(old), sizeOf(fresh)))
	if db.onPut != nil {
		db.onPut(key, fresh)
	}
	return &dynamodb.UpdateItemOutput{Attributes: fresh}, nil
}

// charge bills a write as DynamoDB does: a unit per KiB, one at least, of the
// item before or after, whichever is larger; a failed condition costs the same.
func (db *fakeDB) charge(key string, size int) {
	kind, _, _ := strings.Cut(key, "#")
	db.bill[kind] += max(1, (size+1023)/1024)
	if kind == "alloc" {
		db.bulk = max(db.bulk, size)
	}
}

func keyText(key item) string { return key[keyName].(*types.AttributeValueMemberS).Value }

// sizeOf is DynamoDB's rule for the size of an item, near enough.
func sizeOf(it item) int {
	size := 0
	for name, value := range it {
		size += len(name) + valueSize(value)
	}
	return size
}

func valueSize(value types.AttributeValue) int {
	switch v := value.(type) {
	case *types.AttributeValueMemberN:
		return len(v.Value)/2 + 2
	case *types.AttributeValueMemberS:
		return len(v.Value)
	case *types.AttributeValueMemberM:
		return 3 + sizeOf(v.Value) + len(v.Value)
	default:
		return 1
	}
}

// evaluation is the part of the expression language that the package uses:
// AND, comparisons, attribute_exists, attribute_not_exists, SET of sums,
// REMOVE, nested paths.
type evaluation struct {
	it     item
	names  map[string]string
	values item
}

func (e evaluation) condition(text string) bool {
	for term := range strings.SplitSeq(text, " AND ") {
		if !e.term(term) {
			return false
		}
	}
	return true
}

func (e evaluation) term(term string) bool {
	if path, ok := strings.CutPrefix(term, "attribute_exists("); ok {
		return e.get(strings.TrimSuffix(path, ")")) != nil
	}
	if path, ok := strings.CutPrefix(term, "attribute_not_exists("); ok {
		return e.get(strings.TrimSuffix(path, ")")) == nil
	}
	parts := strings.Fields(term)
	left, right := e.get(parts[0]), e.get(parts[2])
	if left == nil || right == nil {
		return false
	}
	l, r := integer(left), integer(right)
	switch parts[1] {
	case "=":
		return l == r
	case "<=":
		return l <= r
	case "<":
		return l < r
	}
	panic("unknown comparison in " + term)
}

// get is nil for what does not exist.
func (e evaluation) get(path string) types.AttributeValue {
	if strings.HasPrefix(path, ":") {
		return e.values[path]
	}
	in := e.it
	names := strings.Split(path, ".")
	for _, name := range names[:len(names)-1] {
		m, ok := in[e.name(name)].(*types.AttributeValueMemberM)
		if !ok {
			return nil
		}
		in = m.Value
	}
	return in[e.name(names[len(names)-1])]
}

func (e evaluation) name(name string) string {
	if strings.HasPrefix(name, "#") {
		return e.names[name]
	}
	return name
}

func (e evaluation) update(text string, fresh item) error {
	set, remove, _ := strings.Cut(text, " REMOVE ")
	for assignment := range strings.SplitSeq(strings.TrimPrefix(set, "SET "), ", ") {
		path, expression, _ := strings.Cut(assignment, " = ")
		value, err := e.sum(expression)
		if err != nil {
			return err
		}
		e.store(fresh, path, value)
	}
	if remove != "" {
		e.store(fresh, remove, nil)
	}
	return nil
}

func (e evaluation) sum(expression string) (types.AttributeValue, error) {
	parts := strings.Fields(expression)
	if len(parts) == 1 {
		return e.get(parts[0]), nil
	}
	left, right := e.get(parts[0]), e.get(parts[2])
	if left == nil || right == nil {
		return nil, errors.New("ValidationException: an operand does not exist")
	}
	if parts[1] == "-" {
		return number(integer(left) - integer(right)), nil
	}
	return number(integer(left) + integer(right)), nil
}

// store sets path, at most one map deep, without touching what it replaces.
func (e evaluation) store(fresh item, path string, value types.AttributeValue) {
	outer, inner, nested := strings.Cut(path, ".")
	in := fresh
	if nested {
		m := maps.Clone(fresh[outer].(*types.AttributeValueMemberM).Value)
		fresh[outer] = &types.AttributeValueMemberM{Value: m}
		in, outer = m, inner
	}
	if value == nil {
		delete(in, e.name(outer))
	} else {
		in[e.name(outer)] = value
	}
}
