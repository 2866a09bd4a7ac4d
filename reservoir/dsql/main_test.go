package dsql

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/flightpool/flightpool/testserver/localdeps"
)

// Postgres is what stands behind all gateways of the tests.
var Postgres *localdeps.Postgres

func TestMain(m *testing.M) {
	var err error
	if Postgres, err = localdeps.StartPostgres(context.Background(), localdeps.PostgresOptions{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	Postgres.Close()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
