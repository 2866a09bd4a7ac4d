package localdeps

import (
	"context"
	"net"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestPostgresComesBackOnItsPortAndIsGoneAfterClose(t *testing.T) {
	server, err := StartPostgres(t.Context(), PostgresOptions{MaxConnections: 50, Settings: []string{"default_transaction_isolation=repeatable read"}})
	require.NoError(t, err)
	defer server.Close()
	conn, err := pgx.Connect(t.Context(), server.DSN())
	require.NoError(t, err)
	var isolation, fsync, most string
	require.NoError(t, conn.QueryRow(t.Context(),
		"select current_setting('default_transaction_isolation'), current_setting('fsync'), current_setting('max_connections')").
		Scan(&isolation, &fsync, &most))
	require.Equal(t, []string{"repeatable read", "off", "50"}, []string{isolation, fsync, most})
	_, err = conn.Exec(t.Context(), "create table kept as select 1")
	require.NoError(t, err)

	server.Kill()
	require.Error(t, conn.Ping(t.Context()))
	require.NoError(t, server.Start(t.Context()))
	conn, err = pgx.Connect(t.Context(), server.DSN())
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "select * from kept")
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))

	server.Close()
	server.Close()
	_, err = net.Dial("tcp", server.Addr())
	require.Error(t, err)
	require.NoDirExists(t, server.dir)
}

func TestProxyDoesWhatItIsTold(t *testing.T) {
	db, err := StartDynamoDB(t.Context())
	require.NoError(t, err)
	defer db.Close()
	proxy := StartProxy(db.Endpoint)
	defer proxy.Close()
	client := ClientFor(proxy.URL)
	list := func() error {
		_, err := client.ListTables(context.WithoutCancel(t.Context()), &dynamodb.ListTablesInput{}, func(o *dynamodb.Options) {
			o.Retryer = aws.NopRetryer{}
		})
		return err
	}
	require.NoError(t, list())
	proxy.Set(Faults{Outage: true})
	require.Error(t, list())
	proxy.Set(Faults{LoseReply: 1})
	require.Error(t, list())
	proxy.Set(Faults{Throttle: 1})
	require.ErrorContains(t, list(), "ProvisionedThroughputExceededException")
	proxy.Set(Faults{Conflict: 1})
	require.ErrorContains(t, list(), "TransactionConflictException")
	proxy.Set(Faults{Duplicate: 1})
	require.NoError(t, list())
	require.Equal(t, map[string]int{"passed": 2, "lost": 1, "unanswered": 1, "throttled": 1, "conflicting": 1, "duplicated": 1}, proxy.Counts())
}
