package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/logging"
	"github.com/spf13/cobra"

	"github.com/flightpool/flightpool/lease/dynamolease"
	"github.com/flightpool/flightpool/lease/fleet"
	"github.com/flightpool/flightpool/lease/pglease"
)

// A store holds budgets, and can tell which.
type store interface {
	fleet.Store
	Budgets(ctx context.Context) ([]string, error)
}

// A source is a store that is open.
type source struct {
	store
	name  string // for people
	close func()
}

// target is where the flags say that the budgets are.
type target struct {
	table, region, profile, endpoint string
	tableGiven                       bool   // by the flag
	postgres                         string // a connection string: never printed
}

// bind gives a command and those below it the flags that set t.
func (t *target) bind(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVar(&t.table, "table", os.Getenv(tableVariable), "table of the budgets (with --postgres: "+pglease.DefaultTable+" by default)")
	flags.StringVar(&t.region, "region", "", "AWS region of the table (default: that of the AWS SDK)")
	flags.StringVar(&t.profile, "profile", "", "AWS profile (default: that of the AWS SDK)")
	flags.StringVar(&t.endpoint, "endpoint", "", "URL of DynamoDB, for a stand-in")
	flags.StringVar(&t.postgres, "postgres", "", "connection string of a PostgreSQL that has the table, instead of DynamoDB; the password is better in PGPASSWORD or ~/.pgpass")
}

// An opener opens the store of a target. It need not reach it.
type opener func(ctx context.Context, t target) (*source, error)

func openStore(ctx context.Context, t target) (*source, error) {
	named := t.postgres == "" || t.tableGiven                                       // else the environment's is of DynamoDB, and not used
	if named && (strings.Contains(t.table, "://") || isConnectionString(t.table)) { // it is not printed
		return nil, &failure{exitUsage, errors.New("--table, or " + tableVariable + ", is the name of a table: a connection string is given by --postgres")}
	}
	if t.postgres != "" {
		return openPostgres(ctx, t)
	}
	if t.table == "" {
		return nil, &failure{exitUsage, errors.New("no table is named: give --table, or set " + tableVariable)}
	}
	account, err := config.LoadDefaultConfig(ctx,
		config.WithRegion(t.region), config.WithSharedConfigProfile(t.profile), config.WithLogger(logging.Nop{}))
	if err != nil {
		return nil, fmt.Errorf("the AWS configuration cannot be used: %w", err)
	}
	if account.Region == "" {
		return nil, &failure{exitUsage, errors.New("no region is known: give --region, set AWS_REGION, or name one in the AWS profile")}
	}
	client := dynamodb.NewFromConfig(account, func(o *dynamodb.Options) {
		if t.endpoint != "" {
			o.BaseEndpoint = &t.endpoint
		}
	})
	s, err := dynamolease.NewStore(client, t.table)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("DynamoDB table %s in %s", t.table, account.Region)
	return &source{store: retryingStore{s}, name: name, close: func() {}}, nil
}

func openPostgres(ctx context.Context, t target) (*source, error) {
	if t.region+t.profile+t.endpoint != "" {
		return nil, &failure{exitUsage, errors.New("--region, --profile and --endpoint are of DynamoDB, and do not go with --postgres")}
	}
	if !t.tableGiven { // the environment names one of DynamoDB
		t.table = pglease.DefaultTable
	}
	pool, err := pglease.Connect(ctx, t.postgres)
	if err != nil {
		return nil, &failure{exitUsage, err}
	}
	s, err := pglease.NewStore(pool, t.table)
	if err != nil {
		pool.Close()
		return nil, &failure{exitUsage, err}
	}
	at := pool.Config().ConnConfig
	name := fmt.Sprintf("PostgreSQL table %s in database %s of %s", t.table, at.Database, at.Host)
	return &source{store: retryingStore{s}, name: name, close: pool.Close}, nil
}

// A retryingStore reads again after a failure that may pass. Writes are left alone:
// their outcome is unknown then.
type retryingStore struct{ store }

const (
	attempts  = 6
	firstWait = 50 * time.Millisecond // then twice as long each time
	readKeys  = 100                   // at once, so that a repetition repeats little
)

func (p retryingStore) Read(ctx context.Context, keys ...string) (fleet.Snapshot, error) {
	all := fleet.Snapshot{Records: make(map[string]*fleet.Record, len(keys))}
	for len(keys) > 0 {
		n := min(len(keys), readKeys)
		part, err := retry(ctx, func() (fleet.Snapshot, error) { return p.store.Read(ctx, keys[:n]...) })
		if err != nil {
			return fleet.Snapshot{}, err
		}
		for key, r := range part.Records {
			all.Records[key] = r
		}
		all.Now = part.Now
		keys = keys[n:]
	}
	return all, nil
}

func (p retryingStore) Budgets(ctx context.Context) ([]string, error) {
	return retry(ctx, func() ([]string, error) { return p.store.Budgets(ctx) })
}

// retry repeats what failed, with pauses, unless that is of no use.
func retry[T any](ctx context.Context, do func() (T, error)) (T, error) {
	for attempt := 1; ; attempt++ {
		result, err := do()
		if err == nil || attempt == attempts || isPermanent(err) {
			return result, err
		}
		if pause(ctx, firstWait<<(attempt-1)) != nil {
			return result, errors.Join(context.Cause(ctx), err)
		}
	}
}

// isPermanent says that a failure does not pass by itself.
func isPermanent(err error) bool {
	var wrong interface{ Permanent() bool }
	return errors.As(err, &wrong) && wrong.Permanent() || isDenied(err)
}
