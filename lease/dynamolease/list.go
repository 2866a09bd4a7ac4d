package dynamolease

import (
	"context"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/flightpool/flightpool/lease/fleet"
)

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
