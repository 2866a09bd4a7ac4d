package dynamolease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
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
	return enableTTL(ctx, client, name)
}

// enableTTL leaves a stand-in that has no times to live as it is. Only records that
// tell operators about processes expire, so that a table without it is right too, and
// grows slowly.
func enableTTL(ctx context.Context, client *dynamodb.Client, name string) error {
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

// ignoredCodes are the answers after which nothing is to be told: whoever must not
// describe the table need not, and of one that is missing the first read tells.
var ignoredCodes = []string{"AccessDeniedException", "ResourceNotFoundException", "UnknownOperationException"}

// refuseReplicas refuses a global table: two regions would take the same leases, since
// each accepts conditional writes of its own. Where replicas are strongly consistent
// that cannot happen. Who may not describe the table is not asked; a log line tells
// when DynamoDB does not answer. Two seconds, and one attempt: a pool that starts does
// not wait for a check that is only a guard.
func refuseReplicas(ctx context.Context, client *dynamodb.Client, table, setting string, logger *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	out, err := client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &table}, noRetries)
	if err != nil {
		if code := smithy.APIError(nil); !errors.As(err, &code) || !slices.Contains(ignoredCodes, code.ErrorCode()) {
			cmp.Or(logger, slog.Default()).Warn("it is not known whether the table has replicas in other regions, which would not keep the limit",
				"table", table, "cause", err)
		}
		return nil
	}
	if out.Table == nil || out.Table.MultiRegionConsistency == types.MultiRegionConsistencyStrong || len(out.Table.Replicas) == 0 {
		return nil
	}
	var regions []string
	for _, r := range out.Table.Replicas {
		regions = append(regions, aws.ToString(r.RegionName))
	}
	return &ConfigError{
		Setting: setting + ".Table",
		Hint:    "a budget needs a table of one region, or a global one with strong consistency",
		Err:     fmt.Errorf("table %q has replicas in %s", table, strings.Join(regions, ", ")),
	}
}
