package dsql

import (
	"context"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"
)

func TestEveryOpenHasATokenOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		expires := time.Now().Add(10 * time.Minute)
		for user, action := range map[string]string{"admin": "DbConnectAdmin", "app": "DbConnect"} {
			tokens := tokenSigner{someHost, "us-east-1", user, 15 * time.Minute, aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				return aws.Credentials{AccessKeyID: "AKIDTEST", SecretAccessKey: "secret", CanExpire: true, Expires: expires}, nil
			})}
			sign := func() url.Values {
				token, err := tokens.sign(t.Context())
				require.NoError(t, err)
				parsed, err := url.Parse("https://" + token)
				require.NoError(t, err)
				require.Equal(t, someHost, parsed.Host)
				return parsed.Query()
			}
			first := sign()
			time.Sleep(time.Second)
			second := sign()
			require.Equal(t, action, second.Get("Action"))
			require.NotEqual(t, first.Get("X-Amz-Date"), second.Get("X-Amz-Date"))
			valid, err := time.ParseDuration(second.Get("X-Amz-Expires") + "s")
			require.NoError(t, err)
			require.LessOrEqual(t, valid, time.Until(expires), "no longer than its credentials")
		}
	})
}

func TestCredentialsAreResolvedOnceAndAgainWhenTheyExpire(t *testing.T) {
	resolved := 0
	expires := time.Now().Add(time.Hour)
	account, err := awsConfig(t.Context(), Config{Region: "us-east-1", Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		resolved++
		return aws.Credentials{AccessKeyID: "AKIDTEST", SecretAccessKey: "secret", CanExpire: true, Expires: expires}, nil
	})})
	require.NoError(t, err)
	tokens := tokenSigner{someHost, "us-east-1", "admin", time.Minute, account.Credentials}
	for range 10 {
		_, err := tokens.sign(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, 1, resolved)
	account.Credentials.(*aws.CredentialsCache).Invalidate() // as if they had expired
	_, err = tokens.sign(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, resolved)
}

// Opens in the last moments of credentials have new ones, and so tokens that last as long as an open.
func TestCredentialsThatAreAboutToExpireSignNoToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lasts, asked := 20*time.Minute, 0
		account, err := awsConfig(t.Context(), Config{Region: "us-east-1", Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			asked++
			return aws.Credentials{AccessKeyID: "AKIDTEST", SecretAccessKey: "secret", CanExpire: true, Expires: time.Now().Add(lasts)}, nil
		})})
		require.NoError(t, err)
		tokens := tokenSigner{someHost, "us-east-1", "admin", 15 * time.Minute, account.Credentials}
		valid := func() time.Duration {
			token, err := tokens.sign(t.Context())
			require.NoError(t, err)
			parsed, err := url.Parse("https://" + token)
			require.NoError(t, err)
			valid, err := time.ParseDuration(parsed.Query().Get("X-Amz-Expires") + "s")
			require.NoError(t, err)
			return valid
		}
		require.Equal(t, 15*time.Minute, valid())
		time.Sleep(lasts - renewBefore - time.Second)
		require.Equal(t, renewBefore+time.Second, valid())
		require.Equal(t, 1, asked)
		time.Sleep(2 * time.Second)
		require.Equal(t, 15*time.Minute, valid())
		require.Equal(t, 2, asked)
		lasts = 500 * time.Millisecond
		time.Sleep(20*time.Minute - renewBefore + time.Millisecond)
		_, err = tokens.sign(t.Context())
		require.ErrorContains(t, err, "about to", "a token that has expired when it is made")
	})
}
