package dsql_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flightpool/flightpool/reservoir/dsql"
)

func ExampleConfigFromEnv() {
	cfg, err := dsql.ConfigFromEnv() // CLUSTER_ENDPOINT=….dsql.eu-central-1.on.aws DSQL_MAX_OPEN=20 …
	fmt.Println(cfg.Host == "", err)
	// Output: true <nil>
}

func ExampleRetryOCC() {
	attempts := 0
	err := dsql.RetryOCC(context.Background(), func(context.Context) error {
		if attempts++; attempts == 1 {
			return &pgconn.PgError{Code: "OC000", Message: "change conflicts with another transaction"}
		}
		return nil // a whole transaction, begun anew each time
	})
	fmt.Println(attempts, err)
	// Output: 2 <nil>
}
