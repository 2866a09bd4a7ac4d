package dynamolease

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"

	"github.com/flightpool/flightpool/lease"
)

// api is the part of *dynamodb.Client in use.
type api interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
}

type item = map[string]types.AttributeValue

// outcome is what is known of a write.
type outcome uint8

const (
	unknown outcome = iota // no definite answer: it may be applied, now or later
	done                   // applied
	refused                // its condition did not hold
)

// table makes single requests, counts them, and tells what is known after
// each. It never repeats a write: whether that is safe is the caller's matter.
type table struct {
	api     api
	name    string
	region  string
	setting string // "Config" or "LimiterConfig", for errors
	timeout time.Duration

	reads, writes, conditions, failures atomic.Uint64
	skew                                atomic.Int64
}

func newTable(client api, name, setting string, timeout time.Duration) *table {
	t := &table{api: client, name: name, setting: setting, timeout: timeout}
	if c, ok := client.(*dynamodb.Client); ok && c != nil {
		t.region = c.Options().Region
	}
	return t
}

// once turns off the SDK's own retries, which would hide how often a write was
// sent.
func once(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }

// read is a consistent read. A missing item is nil.
func (t *table) read(ctx context.Context, key string) (item, error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	t.reads.Add(1)
	out, err := t.api.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &t.name, Key: keyOf(key), ConsistentRead: aws.Bool(true),
	}, once)
	if err != nil {
		t.failures.Add(1)
		return nil, t.explain(err)
	}
	t.observe(out.ResultMetadata)
	return out.Item, nil
}

// update is one conditional write of one item.
type update struct {
	key       string
	set       string // the update expression
	condition string
	names     map[string]string
	values    item
}

// write sends u once. The item returned is the new one when u is done, and the
// one that stands against it, nil when there is none, when u is refused.
func (t *table) write(ctx context.Context, u update) (item, outcome, error) {
	got, result, err := t.send(ctx, u)
	if result == refused && got == nil {
		// Either there is no item, or the service does not tell.
		if got, err = t.read(ctx, u.key); err != nil {
			return nil, unknown, err
		}
	}
	return got, result, err
}

func (t *table) send(ctx context.Context, u update) (item, outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	t.writes.Add(1)
	out, err := t.api.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:                 &t.name,
		Key:                       keyOf(u.key),
		UpdateExpression:          &u.set,
		ConditionExpression:       &u.condition,
		ExpressionAttributeNames:  u.names,
		ExpressionAttributeValues: u.values,
		ReturnValues:              types.ReturnValueAllNew,

		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}, once)
	if err == nil {
		t.observe(out.ResultMetadata)
		return out.Attributes, done, nil
	}
	if failed := (*types.ConditionalCheckFailedException)(nil); errors.As(err, &failed) {
		t.conditions.Add(1)
		return failed.Item, refused, nil
	}
	t.failures.Add(1)
	return nil, unknown, t.explain(err)
}

func (t *table) observe(metadata middleware.Metadata) {
	if skew, ok := awsmiddleware.GetAttemptSkew(metadata); ok {
		t.skew.Store(int64(skew))
	}
}

func (t *table) traffic() lease.Traffic {
	return lease.Traffic{
		Reads: t.reads.Load(), Writes: t.writes.Load(),
		Conditions: t.conditions.Load(), Failures: t.failures.Load(),
		ClockSkew: time.Duration(t.skew.Load()),
	}
}

// ConfigError is an answer of DynamoDB that no retry will change: a setting or
// a permission is wrong.
type ConfigError struct {
	Setting string // what to look at, for example "Config.Table"
	Hint    string
	Err     error
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("dynamolease: %s: %s: %v", e.Setting, e.Hint, e.Err)
}

// Unwrap reaches the SDK's error.
func (e *ConfigError) Unwrap() error { return e.Err }

func (t *table) explain(err error) error {
	if missing := (*types.ResourceNotFoundException)(nil); errors.As(err, &missing) {
		return &ConfigError{
			Setting: t.setting + ".Table",
			Hint: fmt.Sprintf("table %q does not exist in region %q: make it with CreateTable, or correct the name or the client's region",
				t.name, t.region),
			Err: err,
		}
	}
	var code smithy.APIError
	if !errors.As(err, &code) {
		return err
	}
	switch code.ErrorCode() {
	case "AccessDeniedException":
		return &ConfigError{
			Setting: t.setting + ".Table",
			Hint:    fmt.Sprintf("the client's role needs dynamodb:GetItem and dynamodb:UpdateItem on table %q", t.name),
			Err:     err,
		}
	case "UnrecognizedClientException", "InvalidSignatureException", "MissingAuthenticationTokenException",
		"IncompleteSignatureException", "ExpiredTokenException":
		return &ConfigError{
			Setting: "the DynamoDB client's credentials, region or clock",
			Hint:    fmt.Sprintf("refused in region %q", t.region),
			Err:     err,
		}
	case "ValidationException":
		return &ConfigError{
			Setting: t.setting + ".Table",
			Hint:    fmt.Sprintf("table %q must have the single string key %q, see CreateTable", t.name, keyName),
			Err:     err,
		}
	}
	return err
}

// isPermanent tells a wrong setting from a passing fault.
func isPermanent(err error) bool {
	wrong := (*ConfigError)(nil)
	return errors.As(err, &wrong)
}
