package main

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease/pglease"
	"github.com/flightpool/flightpool/testserver/localdeps"
)

func TestPostgreSQLIsAStoreLikeAnother(t *testing.T) {
	server, err := localdeps.StartPostgres(t.Context(), localdeps.PostgresOptions{})
	require.NoError(t, err)
	defer server.Close()
	pool, err := pglease.Connect(t.Context(), server.DSN())
	require.NoError(t, err)
	defer pool.Close()
	require.NoError(t, pglease.Setup(t.Context(), pool, ""))
	s, err := pglease.NewStore(pool, "")
	require.NoError(t, err)
	fill(t, s, "pg", 20, 0, process{id: "ORDERS", host: "web-1", service: "orders", pid: 1, leases: 7})
	_, err = pool.Exec(t.Context(), "create role reader login; grant select on "+pglease.DefaultTable+" to reader; create role nobody login")
	require.NoError(t, err)

	as := func(user string) string {
		at, err := url.Parse(server.DSN())
		require.NoError(t, err)
		at.User = url.UserPassword(user, "a-secret")
		return at.String()
	}
	for _, v := range []struct {
		code int
		says string
		args []string
	}{
		{exitOK, "budget pg: 7 of 20 leases used", []string{"show", "--postgres", as("reader")}},
		{exitOK, "PostgreSQL table public.flightpool_leases in database postgres of 127.0.0.1", []string{"show", "--postgres", as("reader")}},
		{exitDenied, "grant the role", []string{"limit", "30", "--postgres", as("reader")}},
		{exitDenied, "grant the role", []string{"show", "--postgres", as("nobody")}},
		{exitDenied, "refused", []string{"show", "--postgres", as("somebody")}},
		{exitMissing, "does not exist", []string{"show", "--postgres", as("reader"), "--table", "other"}},
		{exitMissing, "no budget", []string{"show", "--postgres", as("reader"), "--budget", "other"}},
		{exitUsage, "do not go with --postgres", []string{"show", "--postgres", as("reader"), "--region", "eu-west-1"}},
		{exitUsage, "leasectl help", []string{"show", "--postgres", as("reader") + "&sslmode=nonsense"}},
		{exitUsage, "schema.table", []string{"show", "--postgres", as("reader"), "--table", "a.b.c"}},
		{exitOK, "the limit is 30, was 20", []string{"limit", "30", "--postgres", as("postgres")}},
		{exitOK, "7", []string{"free", "ORDERS", "--yes", "--postgres", as("postgres")}},
		{exitOK, "budget pg: 0 of 30 leases used", []string{"show", "--postgres", as("reader")}},
	} {
		r := ctl(t, "", []string{tableVariable + "=of-dynamodb"}, v.args...)
		require.Equal(t, v.code, r.code, "%v: %s%s", v.args, r.out, r.err)
		require.Contains(t, r.out+r.err, v.says)
		require.NotContains(t, r.out+r.err, "a-secret")
	}
}
