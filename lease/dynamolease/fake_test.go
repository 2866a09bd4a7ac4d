package dynamolease

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// fakeDB has DynamoDB's semantics for single items. Expressions are really
// evaluated, so that the product's own are under test. Package integration runs
// the same against a service.
type fakeDB struct {
	mu     sync.Mutex
	items  map[string]item
	oldish bool // do not return the old item with a failed condition

	batchAnswers *int // keys of a batch that are answered; nil: all
	batchReads   int
}

func newFakeDB() *fakeDB { return &fakeDB{items: map[string]item{}} }

// fakeClient is a way to the fake.
type fakeClient struct{ db *fakeDB }

func trip[T any](ctx context.Context, _ *fakeClient, apply func() (T, error)) (T, error) {
	if err := ctx.Err(); err != nil {
		var zero T
		return zero, err
	}
	return apply()
}

func (c *fakeClient) GetItem(ctx context.Context, in *dynamodb.GetItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	key := keyText(in.Key)
	return trip(ctx, c, func() (*dynamodb.GetItemOutput, error) {
		c.db.mu.Lock()
		defer c.db.mu.Unlock()
		return &dynamodb.GetItemOutput{Item: c.db.items[key]}, nil
	})
}

func (c *fakeClient) BatchGetItem(ctx context.Context, in *dynamodb.BatchGetItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error) {
	return trip(ctx, c, func() (*dynamodb.BatchGetItemOutput, error) {
		c.db.mu.Lock()
		defer c.db.mu.Unlock()
		out := &dynamodb.BatchGetItemOutput{Responses: map[string][]item{}}
		for table, wanted := range in.RequestItems {
			for i, key := range wanted.Keys {
				if answers := c.db.batchAnswers; answers != nil && i >= *answers {
					wanted.Keys = wanted.Keys[i:]
					out.UnprocessedKeys = map[string]types.KeysAndAttributes{table: wanted}
					break
				}
				c.db.batchReads++
				if it := c.db.items[keyText(key)]; it != nil {
					out.Responses[table] = append(out.Responses[table], it)
				}
			}
		}
		return out, nil
	})
}

// Scan returns all keys, two to a page, whatever the filter says.
func (c *fakeClient) Scan(ctx context.Context, in *dynamodb.ScanInput, _ ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error) {
	return trip(ctx, c, func() (*dynamodb.ScanOutput, error) {
		c.db.mu.Lock()
		defer c.db.mu.Unlock()
		keys := slices.Sorted(maps.Keys(c.db.items))
		if in.ExclusiveStartKey != nil {
			keys = slices.DeleteFunc(keys, func(key string) bool { return key <= keyText(in.ExclusiveStartKey) })
		}
		out := &dynamodb.ScanOutput{}
		for _, key := range keys[:min(2, len(keys))] {
			out.Items = append(out.Items, keyOf(key))
			out.LastEvaluatedKey = keyOf(key)
		}
		return out, nil
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
	if in.ConditionExpression != nil && !e.condition(*in.ConditionExpression) {
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
	return &dynamodb.UpdateItemOutput{Attributes: fresh}, nil
}

func keyText(key item) string { return key[keyName].(*types.AttributeValueMemberS).Value }

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
	l, r := intOf(left), intOf(right)
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
	for path := range strings.SplitSeq(remove, ", ") {
		if path != "" {
			e.store(fresh, path, nil)
		}
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
		return numberValue(intOf(left) - intOf(right)), nil
	}
	return numberValue(intOf(left) + intOf(right)), nil
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
