package dynamolease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/flightpool/flightpool/lease/fleet"
)

// dynamoAPI is the part of *dynamodb.Client in use. Tests have a fake of it that
// evaluates the expressions.
type dynamoAPI interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	BatchGetItem(context.Context, *dynamodb.BatchGetItemInput, ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	Scan(context.Context, *dynamodb.ScanInput, ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error)
}

// batchKeys is how many keys one BatchGetItem may have. DynamoDB sets it.
const batchKeys = 100

// Store is a fleet.Store in a DynamoDB table, one item per record. It makes
// each request once and tells what is known after it.
//
// Its methods may be called by many goroutines, and one Store may serve Leases and
// Limiters of any number of budgets. It has nothing to close; the client is its
// caller's.
type Store struct {
	api     dynamoAPI
	table   string
	region  string
	setting string // "Config" or "LimiterConfig", for errors
	skew    atomic.Int64
}

// NewStore is the store of a table that exists; see CreateTable.
func NewStore(client *dynamodb.Client, table string) (*Store, error) {
	switch {
	case client == nil:
		return nil, errors.New("dynamolease: the DynamoDB client is nil")
	case table == "":
		return nil, errors.New("dynamolease: Config.Table is empty")
	}
	return newStore(client, table, "Config"), nil
}

func newStore(client dynamoAPI, table, setting string) *Store {
	s := &Store{api: client, table: table, setting: setting}
	if c, ok := client.(*dynamodb.Client); ok && c != nil {
		s.region = c.Options().Region
	}
	return s
}

// ClockSkew is DynamoDB's clock minus this process's, as the SDK observed it with the
// last answer. Nothing of the protocol goes by it: it is for operators, in
// lease.Traffic.
func (s *Store) ClockSkew() time.Duration { return time.Duration(s.skew.Load()) }

// noRetries turns off the SDK's own retries, which would hide how often a write was
// sent. A retry whose first sending was done fails by its own condition, which reads as
// a denial. The protocol repeats a step itself and knows by its sequence number what
// was done.
func noRetries(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }

// Read is as fleet.Store says. More than 100 keys take more than one request. All reads
// are consistent: an old record would be taken for proof that this process lives.
func (s *Store) Read(ctx context.Context, keys ...string) (fleet.Snapshot, error) {
	found := fleet.Snapshot{Records: make(map[string]*fleet.Record, len(keys))}
	if len(keys) == 1 {
		out, err := s.api.GetItem(ctx, &dynamodb.GetItemInput{
			TableName: &s.table, Key: keyOf(keys[0]), ConsistentRead: aws.Bool(true),
		}, noRetries)
		if err != nil {
			return fleet.Snapshot{}, s.explain(err)
		}
		s.noteSkew(out.ResultMetadata)
		if out.Item != nil {
			found.Records[keys[0]] = decode(out.Item)
		}
		return found, nil
	}
	for len(keys) > 0 {
		n := min(len(keys), batchKeys)
		left, err := s.readBatch(ctx, keys[:n], found.Records)
		if err == nil && len(left) == n {
			err = errNothingRead
		}
		if err != nil {
			return fleet.Snapshot{}, err
		}
		keys = append(left, keys[n:]...)
	}
	return found, nil
}

// errNothingRead says that DynamoDB left out every key of a batch. It is an error like
// any other that may pass.
var errNothingRead = errors.New("dynamolease: DynamoDB answered nothing of a batch")

// readBatch reads up to batchKeys records into found. Keys without an item are not in
// it. It returns the keys that DynamoDB left out, as it does when it is short of
// capacity or an answer is too large.
func (s *Store) readBatch(ctx context.Context, keys []string, found map[string]*fleet.Record) (left []string, err error) {
	wanted := types.KeysAndAttributes{ConsistentRead: aws.Bool(true)}
	for _, key := range keys {
		wanted.Keys = append(wanted.Keys, keyOf(key))
	}
	out, err := s.api.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{
		RequestItems: map[string]types.KeysAndAttributes{s.table: wanted},
	}, noRetries)
	if err != nil {
		return nil, s.explain(err)
	}
	s.noteSkew(out.ResultMetadata)
	for _, unread := range out.UnprocessedKeys {
		for _, key := range unread.Keys {
			if key, ok := key[keyName].(*types.AttributeValueMemberS); ok {
				left = append(left, key.Value)
			}
		}
	}
	for _, items := range out.Responses {
		for _, it := range items {
			if key, ok := it[keyName].(*types.AttributeValueMemberS); ok {
				found[key.Value] = decode(it)
			}
		}
	}
	return left, nil
}

// Write is as fleet.Store says. Any answer but a failed condition leaves the outcome
// unknown: DynamoDB answers errors of its own for writes that it may have done.
func (s *Store) Write(ctx context.Context, change fleet.Change) (fleet.Answer, error) {
	out, err := s.api.UpdateItem(ctx, newUpdate(&change).input(s.table, change.Key), noRetries)
	if err == nil {
		s.noteSkew(out.ResultMetadata)
		return fleet.Answer{Done: true, Record: decode(out.Attributes)}, nil
	}
	failed := (*types.ConditionalCheckFailedException)(nil)
	if !errors.As(err, &failed) {
		return fleet.Answer{}, s.explain(err)
	}
	if failed.Item != nil {
		return fleet.Answer{Record: decode(failed.Item)}, nil
	}
	// Either there is no item, or the service does not tell.
	now, err := s.Read(ctx, change.Key)
	if err != nil {
		return fleet.Answer{}, fmt.Errorf("dynamolease: a condition failed, and the item cannot be read: %w", err)
	}
	return fleet.Answer{Record: now.Records[change.Key]}, nil
}

// noteSkew keeps the difference that the SDK has seen; an answer without one changes
// nothing.
func (s *Store) noteSkew(metadata middleware.Metadata) {
	if skew, ok := awsmiddleware.GetAttemptSkew(metadata); ok {
		s.skew.Store(int64(skew))
	}
}

// Budgets returns the names of the budgets in the table, sorted. It is for
// operators: it scans the whole table, which needs dynamodb:Scan and half a read
// unit for each 4 KB of all items.
func (s *Store) Budgets(ctx context.Context) ([]string, error) {
	var names []string
	pages := dynamodb.NewScanPaginator(s.api, &dynamodb.ScanInput{
		TableName:                 &s.table,
		FilterExpression:          aws.String("begins_with(#k, :p)"),
		ProjectionExpression:      aws.String("#k"),
		ExpressionAttributeNames:  map[string]string{"#k": keyName},
		ExpressionAttributeValues: item{":p": stringValue(fleet.BudgetPrefix)},
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx, noRetries)
		if err != nil {
			return nil, s.explain(err)
		}
		for _, it := range page.Items {
			key, ok := it[keyName].(*types.AttributeValueMemberS)
			if !ok {
				continue
			}
			if name, ok := strings.CutPrefix(key.Value, fleet.BudgetPrefix); ok {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names, nil
}
