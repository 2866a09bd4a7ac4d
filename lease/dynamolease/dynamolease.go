package dynamolease

import (
	"context"
	"log/slog"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/flightpool/flightpool/lease/fleet"
)

// These are the fleet's, whatever the store.
type (
	// Config describes a fleet's budget of connections. Table is required.
	Config = fleet.Config
	// LimiterConfig describes a fleet's budget of opens. Table is required.
	LimiterConfig = fleet.LimiterConfig
	// Leases is a fleet's budget of connections in a DynamoDB table.
	Leases = fleet.Leases
	// Limiter is a fleet's budget of opens in a DynamoDB table.
	Limiter = fleet.Limiter
	// ConfigError is an answer of DynamoDB that no retry will change.
	ConfigError = fleet.ConfigError
)

// New joins the fleet that shares cfg.Budget: see fleet.New. It refuses a
// table that has replicas in other regions, see the package comment.
func New(ctx context.Context, client *dynamodb.Client, cfg Config) (*Leases, error) {
	store, err := openChecked(ctx, client, cfg.Table, "Config", cfg.Logger)
	if err != nil {
		return nil, err
	}
	return fleet.New(ctx, store, cfg)
}

// NewLimiter joins the fleet that shares cfg.Budget: see fleet.NewLimiter. It
// refuses a table that has replicas in other regions.
func NewLimiter(ctx context.Context, client *dynamodb.Client, cfg LimiterConfig) (*Limiter, error) {
	store, err := openChecked(ctx, client, cfg.Table, "LimiterConfig", cfg.Logger)
	if err != nil {
		return nil, err
	}
	return fleet.NewLimiter(ctx, store, cfg)
}

// SetLimit changes the limit of a budget that exists: see fleet.SetLimit.
func SetLimit(ctx context.Context, client *dynamodb.Client, table, budget string, limit int) error {
	store, err := NewStore(client, table)
	if err != nil {
		return err
	}
	return fleet.SetLimit(ctx, store, budget, limit)
}

// openChecked is a store whose table is one of one region, as far as can be told.
// setting is the struct that errors name.
func openChecked(ctx context.Context, client *dynamodb.Client, table, setting string, logger *slog.Logger) (*Store, error) {
	store, err := NewStore(client, table)
	if err != nil {
		return nil, err
	}
	store.setting = setting
	return store, refuseReplicas(ctx, client, table, setting, logger)
}
