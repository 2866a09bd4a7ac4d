package dsql

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/flightpool/flightpool/internal/callback"
)

// credentialsLimit is how long Config.Credentials may take for one answer. The
// SDK's cache asks once for all opens, without the deadline of any.
const credentialsLimit = time.Minute

// guardedCredentials are the user's, asked by the SDK's cache on a goroutine of its
// own: there a panic would end the process, and a call that does not return would
// be the last.
type guardedCredentials struct{ aws.CredentialsProvider }

// guardCredentials guards what the SDK will cache. Of what is cached already, the
// cache is the user's.
func guardCredentials(p aws.CredentialsProvider) aws.CredentialsProvider {
	if _, cached := p.(*aws.CredentialsCache); cached || aws.IsCredentialsProvider(p, (*aws.AnonymousCredentials)(nil)) {
		return p
	}
	return guardedCredentials{p}
}

func (g guardedCredentials) Retrieve(ctx context.Context) (aws.Credentials, error) {
	ctx, cancel := context.WithTimeout(ctx, credentialsLimit)
	defer cancel()
	a, inTime := callback.Within(ctx, returnMargin, func() (aws.Credentials, error) { return g.CredentialsProvider.Retrieve(ctx) }, nil, nil)
	if !inTime {
		return a.Value, context.Cause(ctx)
	}
	return a.Value, a.Failure("dsql: Credentials")
}

// IsCredentialsProvider says whether the user's are of the type of target.
func (g guardedCredentials) IsCredentialsProvider(target aws.CredentialsProvider) bool {
	return aws.IsCredentialsProvider(g.CredentialsProvider, target)
}

// HandleFailToRefresh is what the cache does when there are no new ones.
func (g guardedCredentials) HandleFailToRefresh(ctx context.Context, last aws.Credentials, err error) (aws.Credentials, error) {
	if s, ok := g.CredentialsProvider.(aws.HandleFailRefreshCredentialsCacheStrategy); ok {
		return s.HandleFailToRefresh(ctx, last, err)
	}
	return aws.Credentials{}, err
}

// AdjustExpiresBy is what the cache does with the expiry of new ones.
func (g guardedCredentials) AdjustExpiresBy(c aws.Credentials, by time.Duration) (aws.Credentials, error) {
	if s, ok := g.CredentialsProvider.(aws.AdjustExpiresByCredentialsCacheStrategy); ok {
		return s.AdjustExpiresBy(c, by)
	}
	if c.CanExpire {
		c.Expires = c.Expires.Add(by)
	}
	return c, nil
}
