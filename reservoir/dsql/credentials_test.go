package dsql

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"
)

// failing are credentials whose first answer never comes.
type failing struct {
	fail  func()
	asked atomic.Bool
}

func (f *failing) Retrieve(context.Context) (aws.Credentials, error) {
	if !f.asked.Swap(true) {
		f.fail()
	}
	return aws.Credentials{AccessKeyID: "AKIDNEXT", SecretAccessKey: "secret"}, nil
}

// The cache of the SDK asks for all, once, and has no deadline.
func TestCredentialsThatHangOrPanicAreAskedAgain(t *testing.T) {
	for name, fail := range map[string]func(hold chan struct{}){
		"hang": func(hold chan struct{}) { <-hold }, "panic": func(chan struct{}) { panic("the user's") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hold := make(chan struct{})
				defer close(hold)
				cache := aws.NewCredentialsCache(guardCredentials(&failing{fail: func() { fail(hold) }}))
				began := time.Now()
				for {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					found, err := cache.Retrieve(ctx)
					cancel()
					if err == nil {
						require.Equal(t, "AKIDNEXT", found.AccessKeyID)
						break
					}
					require.Less(t, time.Since(began), 2*credentialsLimit)
				}
			})
		})
	}
}

// keeping are credentials with rules of their own for the cache.
type keeping struct{ aws.CredentialsProvider }

func (keeping) HandleFailToRefresh(_ context.Context, last aws.Credentials, _ error) (aws.Credentials, error) {
	return last, nil
}

func (keeping) AdjustExpiresBy(c aws.Credentials, by time.Duration) (aws.Credentials, error) {
	c.Expires = c.Expires.Add(10 * by)
	return c, nil
}

func TestTheRulesOfCredentialsForTheCacheAreKept(t *testing.T) {
	last := aws.Credentials{AccessKeyID: "AKIDLAST", CanExpire: true}
	plain := guardCredentials(&failing{}).(guardedCredentials)
	own := guardCredentials(keeping{&failing{}}).(guardedCredentials)
	_, err := plain.HandleFailToRefresh(t.Context(), last, context.Canceled)
	require.ErrorIs(t, err, context.Canceled)
	kept, err := own.HandleFailToRefresh(t.Context(), last, context.Canceled)
	require.NoError(t, err)
	require.Equal(t, last, kept)
	earlier, err := plain.AdjustExpiresBy(last, -time.Second)
	require.NoError(t, err)
	require.Equal(t, last.Expires.Add(-time.Second), earlier.Expires)
	earlier, err = own.AdjustExpiresBy(last, -time.Second)
	require.NoError(t, err)
	require.Equal(t, last.Expires.Add(-10*time.Second), earlier.Expires)
	require.IsType(t, aws.AnonymousCredentials{}, guardCredentials(aws.AnonymousCredentials{}))
	require.False(t, aws.IsCredentialsProvider(own, aws.AnonymousCredentials{}))
}
