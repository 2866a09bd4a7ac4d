package dsql

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/dsql/auth"
	"github.com/aws/smithy-go/logging"
)

// awsConfig resolves region and credentials, once for a Cluster.
func awsConfig(ctx context.Context, c Config) (aws.Config, error) {
	log := cmp.Or(c.Logger, slog.Default())
	options := []func(*config.LoadOptions) error{
		config.WithRegion(c.Region),
		config.WithLogger(logging.LoggerFunc(func(kind logging.Classification, format string, args ...any) {
			log.Debug("AWS SDK: "+fmt.Sprintf(format, args...), "kind", kind)
		})),
	}
	if c.Credentials != nil {
		options = append(options, config.WithCredentialsProvider(guardCredentials(c.Credentials)))
	}
	loaded, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return aws.Config{}, fmt.Errorf("dsql: Credentials: %w", err)
	}
	return loaded, nil
}

// A tokenSigner makes the passwords of opens. There is no cache: signing costs less
// than a lock is worth, and the SDK may shorten a token to the life of the credentials.
type tokenSigner struct {
	host, region, user string
	lifetime           time.Duration
	credentials        aws.CredentialsProvider
}

// sign makes a token for one open.
func (t tokenSigner) sign(ctx context.Context) (string, error) {
	if t.credentials == nil {
		return "", errors.New("there are none")
	}
	credentials, err := t.credentials.Retrieve(ctx)
	if err != nil {
		return "", err
	}
	if credentials.Expired() {
		return "", fmt.Errorf("those of access key %q have expired at %v", credentials.AccessKeyID, credentials.Expires)
	}
	// What is signed with must be what was looked at.
	fixed := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return credentials, nil })
	generate := auth.GenerateDbConnectAuthToken
	if t.user == "admin" {
		generate = auth.GenerateDBConnectAdminAuthToken
	}
	return generate(ctx, t.host, t.region, fixed, func(o *auth.TokenOptions) { o.ExpiresIn = t.lifetime })
}
