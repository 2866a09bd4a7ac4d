package dynamolease

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"
)

// describes answers DescribeTable with a text, and everything else with nothing.
type describes struct {
	status int // 0: no answer
	text   string
}

func (d describes) Do(r *http.Request) (*http.Response, error) {
	status, text := http.StatusOK, "{}"
	if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".DescribeTable") {
		if status, text = d.status, d.text; status == 0 {
			return nil, errors.New("connection reset")
		}
	}
	return &http.Response{
		StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text)), Request: r,
	}, nil
}

// Each region of a global table accepts conditional writes of its own, so that
// the fleet would have its limit once in each.
func TestATableWithReplicasInOtherRegionsIsRefused(t *testing.T) {
	const replicas = `"Replicas":[{"RegionName":"eu-west-1"},{"RegionName":"us-east-2"}]`
	for _, v := range []struct {
		name    string
		answer  describes
		refused bool
		warned  bool
	}{
		{"one region", describes{200, `{"Table":{"TableName":"t"}}`}, false, false},
		{"replicas", describes{200, `{"Table":{"TableName":"t",` + replicas + `}}`}, true, false},
		{"replicas, eventually", describes{200, `{"Table":{"MultiRegionConsistency":"EVENTUAL",` + replicas + `}}`}, true, false},
		{"replicas, strongly", describes{200, `{"Table":{"MultiRegionConsistency":"STRONG",` + replicas + `}}`}, false, false},
		{"not allowed", describes{400, `{"__type":"com.amazon.coral.service#AccessDeniedException","message":"no"}`}, false, false},
		{"fails", describes{500, `{"__type":"com.amazonaws.dynamodb.v20120810#InternalServerError","message":"later"}`}, false, true},
		{"no answer", describes{}, false, true},
	} {
		t.Run(v.name, func(t *testing.T) {
			var log bytes.Buffer
			client := dynamodb.New(dynamodb.Options{
				Region: "eu-central-1", HTTPClient: v.answer,
				Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
					return aws.Credentials{AccessKeyID: "a", SecretAccessKey: "b"}, nil
				}),
			})
			logger := slog.New(slog.NewTextHandler(&log, nil))
			_, err := openChecked(t.Context(), client, "t", "Config", logger)
			require.Equal(t, v.warned, strings.Contains(log.String(), "replicas"), log.String())
			var refused *ConfigError
			if !v.refused {
				require.NoError(t, err)
				return
			}
			require.ErrorAs(t, err, &refused)
			require.ErrorContains(t, err, "Config.Table: a budget needs a table of one region")
			require.ErrorContains(t, err, `table "t" has replicas in eu-west-1, us-east-2`)
			_, err = New(t.Context(), client, Config{Table: "t", Budget: "b", Limit: 10, Logger: logger})
			require.ErrorAs(t, err, &refused)
			_, err = NewLimiter(t.Context(), client, LimiterConfig{Table: "t", Budget: "b", Logger: logger})
			require.ErrorAs(t, err, &refused)
			require.ErrorContains(t, err, "LimiterConfig.Table")
		})
	}
}
