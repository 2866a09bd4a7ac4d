package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStatementsThatMayHoldASecretAreKnown(t *testing.T) {
	for _, sql := range []string{
		"ALTER USER app PASSWORD 'hunter2'",
		"CREATE SECRET s (TYPE s3, KEY_ID 'a', SECRET 'hunter2')",
		"CREATE USER a IDENTIFIED\nBY 'hunter2'",
		"ATTACH 'postgres://app:hunter2@db/sales' AS sales",
		"ATTACH 'postgresql://app:hun/ter2@db/sales' AS sales",
		"ATTACH 'host=db user=app pwd=hunter2' AS sales (TYPE mysql)",
		"ATTACH 'sales.db' AS sales (ENCRYPTION_KEY 'hunter2')",
		"PRAGMA add_parquet_key('k', 'hunter2')",
		"SELECT http_get('https://example.com', headers => {'Authorization': 'Basic aHVudGVyMg=='})",
		"SELECT http_get('https://example.com', headers => {'X-Api-Key': 'hunter2'})",
		"SET pem = '-----BEGIN PRIVATE KEY-----hunter2'",
		"CREATE STAGE s CREDENTIALS = (ACCESS KEY 'hunter2')",
		"FROM read_parquet('https://a.blob.core.windows.net/c/f.parquet?sv=2024-11-04&sig=hunter2')",
		"FROM read_csv('https://d.cloudfront.net/f.csv?Expires=1&Signature=hunter2')",
		"SET azure_storage_connection_string = 'AccountKey=hunter2'",
	} {
		require.True(t, secret.MatchString(sql), sql)
	}
	for _, sql := range []string{
		"CREATE TABLE t (id BIGINT PRIMARY KEY, customer_key BIGINT)",
		"SELECT * FROM read_csv('https://example.com:8443/flights.csv')",
		"SELECT sig, signature = 'x' AS same FROM letters WHERE authorized",
		"CREATE TABLE u (t BIGINT, FOREIGN KEY (t) REFERENCES t (id))",
		"SELECT 'a@b.example' AS mail, '12:30' AS at, 'https://example.com/a:b' AS page",
	} {
		require.False(t, secret.MatchString(sql), sql)
	}
}
