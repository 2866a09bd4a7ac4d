package registry_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/oauth"
	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/reservoir/dsql"
)

// TestWhatHoldsSecretsPrintsNone prints every public type that callers put
// secrets in, by itself and inside of others.
func TestWhatHoldsSecretsPrintsNone(t *testing.T) {
	const s = "hunter2"
	texts, headers := map[string]string{"token": s}, metadata.Pairs("x-api-key", s)
	ddl, err := registry.ParseServerDDL("CREATE USER MAPPING FOR bob SERVER a OPTIONS (user 'u', password 'hunter2')")
	require.NoError(t, err)
	mapping := registry.UserMapping{User: "u", Password: s, Options: texts}
	definition := registry.ServerDefinition{Name: "a", Target: "grpc://u:hunter2@x:1", Options: texts, Users: map[string]registry.UserMapping{"bob": mapping}}
	client := oauth.Client{ID: "i", Secret: s, Params: url.Values{"p": {s}}}
	call, ingest := backend.Call{Headers: headers}, flightpool.IngestOptions{Table: "t", Headers: headers, Options: texts}
	params := registry.ConnectParams{Server: "a", Target: "grpc://u:hunter2@x:1", Password: s, Options: texts}
	aurora := dsql.Config{Host: "h", Credentials: credentials.NewStaticCredentialsProvider("id", s, "")}
	config := flightpool.Config{Headers: headers, Auth: flightpool.BasicAuth("u", s)}
	for _, v := range []any{
		client, &client, oauth.Exchange{Client: client}, mapping, &mapping, definition, &definition, params, &params, ddl, ddl[0], ddl[0].Options[0],
		call, &call, ingest, &ingest, flightpool.QueryOptions{Headers: headers}, aurora, &aurora, config, &config,
	} {
		var out bytes.Buffer
		for _, x := range []any{v, []any{v}, map[string]any{"k": v}, struct{ V any }{v}} {
			for _, verb := range []string{"%v", "%+v", "%#v", "%q", "%s", "%x", "%X", "%d", "%t", "%c"} {
				_, _ = fmt.Fprintf(&out, verb+"\n", x)
			}
			slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "v", x)
			slog.New(slog.NewTextHandler(&out, nil)).Info("m", "v", x)
			text, err := json.Marshal(x)
			require.NoError(t, err)
			out.Write(text)
		}
		require.NotContains(t, out.String(), s, "%T", v)
		for _, form := range []string{"%x", "%X", "%d"} {
			require.NotContains(t, out.String(), fmt.Sprintf(form, []byte(s)), "%T", v)
		}
	}
	require.Equal(t, `registry.ServerDefinition{Name: "a", Target: set, Options: [token], Users: [bob]}`, definition.String())
	require.Equal(t, `ddl.Statement{Position: set, Server: "a", User: "bob"} of the options [user password]`, fmt.Sprint(ddl[0]))
	require.Equal(t, `flightpool.IngestOptions{Table: "t", Options: [token], Headers: [x-api-key]}`, ingest.String())
	require.Equal(t, `dsql.Config{Host: "h", Credentials: set}`, aurora.String())
}
