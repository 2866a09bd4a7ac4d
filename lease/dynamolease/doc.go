// Package dynamolease keeps a fleet's budgets in one DynamoDB table.
package dynamolease
