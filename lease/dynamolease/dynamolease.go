package dynamolease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

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

// explain turns an answer that no retry will change into a *ConfigError. What may pass,
// such as throttling or a failure of DynamoDB's own, is returned as it is: the Fallback
// decides while it lasts. An expired token counts as lasting, since whoever configures
// the client has to look at it.
func (s *Store) explain(err error) error {
	wrong := func(setting, hint string, args ...any) error {
		return &ConfigError{Setting: setting, Hint: fmt.Sprintf(hint, args...), Err: err}
	}
	table := s.setting + ".Table"
	if missing := (*types.ResourceNotFoundException)(nil); errors.As(err, &missing) {
		return wrong(table, "table %q does not exist in region %q: make it with CreateTable, or correct the name or the client's region", s.table, s.region)
	}
	var code smithy.APIError
	if !errors.As(err, &code) {
		return err
	}
	switch code.ErrorCode() {
	case "AccessDeniedException":
		return wrong(table, "the client's role needs dynamodb:GetItem, dynamodb:BatchGetItem and dynamodb:UpdateItem on table %q, and dynamodb:Scan to list budgets", s.table)
	case "UnrecognizedClientException", "InvalidSignatureException", "MissingAuthenticationTokenException",
		"IncompleteSignatureException", "ExpiredTokenException":
		return wrong("the DynamoDB client's credentials, region or clock", "refused in region %q", s.region)
	case "ValidationException": // a wrong key, or something else, such as an item that is too large
		if strings.Contains(strings.ToLower(code.ErrorMessage()), "key") {
			return wrong(table, "table %q must have the single string key %q, see CreateTable", s.table, keyName)
		}
	}
	return err
}
