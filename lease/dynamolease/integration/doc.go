// Package integration holds the tests of dynamolease against a DynamoDB that
// runs: dynalite, or what DYNAMODB_ENDPOINT names. They are apart so that the
// package's own tests need nothing installed.
package integration
