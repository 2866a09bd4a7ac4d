package dsql_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/flightpool/flightpool/testserver/localdeps"
)

var postgres *localdeps.Postgres

func TestMain(m *testing.M) {
	var err error
	if postgres, err = localdeps.StartPostgres(context.Background(), localdeps.PostgresOptions{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	postgres.Close()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
