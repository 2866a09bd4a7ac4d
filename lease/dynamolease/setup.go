package dynamolease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/flightpool/flightpool/lease"
)

// CreateTable makes the table, billed per request, waits until it is ready,
// and turns on the removal of garbage after its time to live. A table that
// exists already is left as it is. The wait ends with ctx, at the latest after
// five minutes.
func CreateTable(ctx context.Context, client *dynamodb.Client, name string) error {
	_, err := client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName:            &name,
		BillingMode:          types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String(keyName), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String(keyName), KeyType: types.KeyTypeHash}},
	})
	if exists := (*types.ResourceInUseException)(nil); err != nil && !errors.As(err, &exists) {
		return fmt.Errorf("dynamolease: create table %q: %w", name, err)
	}
	waiter := dynamodb.NewTableExistsWaiter(client, func(o *dynamodb.TableExistsWaiterOptions) {
		o.MinDelay = 100 * time.Millisecond
	})
	if err := waiter.Wait(ctx, &dynamodb.DescribeTableInput{TableName: &name}, 5*time.Minute); err != nil {
		return fmt.Errorf("dynamolease: table %q does not become ready: %w", name, err)
	}
	return removeGarbage(ctx, client, name)
}

// removeGarbage leaves a stand-in that has no times to live as it is.
func removeGarbage(ctx context.Context, client *dynamodb.Client, name string) error {
	state, err := client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &name})
	if err != nil {
		return fmt.Errorf("dynamolease: time to live of table %q: %w", name, err)
	}
	if d := state.TimeToLiveDescription; d != nil && d.TimeToLiveStatus != types.TimeToLiveStatusDisabled && d.TimeToLiveStatus != "" {
		return nil
	}
	_, err = client.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
		TableName:               &name,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String("ttl"), Enabled: aws.Bool(true)},
	})
	var answer smithy.APIError
	if errors.As(err, &answer) && answer.ErrorCode() == "UnknownOperationException" {
		return nil
	}
	if err != nil {
		return fmt.Errorf("dynamolease: time to live of table %q: %w", name, err)
	}
	return nil
}

// SetLimit changes the limit of a budget that exists. Running processes follow
// with their next change; nothing is revoked when the new limit is lower, but
// nothing more is granted until the fleet is below it. Processes started later
// must be configured with the new limit.
func SetLimit(ctx context.Context, client *dynamodb.Client, table, budget string, limit int) error {
	if err := need(limit > 0, "SetLimit: limit is %d, must be positive", limit); err != nil {
		return err
	}
	t := newTable(client, table, "SetLimit", 5*time.Second)
	first, err := t.read(ctx, allocKey(budget, 0))
	if err != nil {
		return err
	}
	shards := int(decodeAlloc(first).shards)
	if err := need(shards > 0, "SetLimit: table %q has no budget %q", table, budget); err != nil {
		return err
	}
	for shard := range shards {
		_, result, err := t.write(ctx, update{
			key: allocKey(budget, shard), set: "SET cap = :cap", condition: "attribute_exists(cap)",
			values: item{":cap": number(share(limit, shards, shard))},
		})
		if result != done {
			return fmt.Errorf("dynamolease: SetLimit: shard %d of %d of budget %q: %w", shard, shards, budget, errors.Join(err, lease.ErrUnavailable))
		}
	}
	return nil
}

// share is shard's part of limit.
func share(limit, shards, shard int) int64 {
	part := limit / shards
	if shard < limit%shards {
		part++
	}
	return int64(part)
}

// setUp makes the allocation items that are missing and compares the rest with
// the configuration. It may run in many processes at once.
func setUp(ctx context.Context, t *table, cfg *Config) ([]alloc, error) {
	shards := make([]alloc, cfg.Shards)
	limit := 0
	for shard := range shards {
		it, err := t.read(ctx, allocKey(cfg.Budget, shard))
		if err != nil {
			return nil, err
		}
		if it == nil {
			// Either this write makes it, or another process did: both show it.
			if it, _, err = t.write(ctx, update{
				key:       allocKey(cfg.Budget, shard),
				set:       "SET cap = :cap, used = :zero, shards = :shards, o = :none",
				condition: "attribute_not_exists(pk)",
				values: item{
					":cap": number(share(cfg.Limit, cfg.Shards, shard)), ":shards": number(int64(cfg.Shards)),
					":zero": number(0), ":none": &types.AttributeValueMemberM{Value: item{}},
				},
			}); err != nil {
				return nil, err
			}
		}
		shards[shard] = decodeAlloc(it)
		limit += int(shards[shard].limit)
		if shards[shard].shards != int64(cfg.Shards) {
			return nil, mismatch("Config.Shards", cfg.Shards, int(shards[shard].shards), "use the table's: it is fixed")
		}
	}
	if limit != cfg.Limit {
		return nil, mismatch("Config.Limit", cfg.Limit, limit, "use the table's, or change that with SetLimit")
	}
	return shards, nil
}

func mismatch(setting string, here, there int, hint string) error {
	return &ConfigError{Setting: setting, Hint: hint, Err: fmt.Errorf("%d here, %d in the table", here, there)}
}
