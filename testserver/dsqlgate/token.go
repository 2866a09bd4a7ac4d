package dsqlgate

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The form of a token, which is a presigned URL without its scheme.
const (
	algorithm     = "AWS4-HMAC-SHA256"
	timeLayout    = "20060102T150405Z"
	maxExpires    = 7 * 24 * time.Hour
	clockLeeway   = 5 * time.Minute // how far in the future a token may be dated
	emptyBodyHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

// verify says why a token does not let user in, or nil.
func (g *Gate) verify(token, user string, now time.Time) error {
	host, rawQuery, ok := strings.Cut(token, "?")
	if !ok || strings.TrimSuffix(host, "/") != g.opts.Host {
		return fmt.Errorf("token is for host %q", host)
	}
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return fmt.Errorf("token is no query: %w", err)
	}
	action := "DbConnect"
	if user == "admin" {
		action = "DbConnectAdmin"
	}
	if got := query.Get("Action"); got != action {
		return fmt.Errorf("action is %q, user %q needs %q", got, user, action)
	}
	signed, err := time.Parse(timeLayout, query.Get("X-Amz-Date"))
	if err != nil {
		return fmt.Errorf("X-Amz-Date: %w", err)
	}
	seconds, err := strconv.Atoi(query.Get("X-Amz-Expires"))
	if lifetime := time.Duration(seconds) * time.Second; err != nil || lifetime <= 0 || lifetime > maxExpires {
		return fmt.Errorf("X-Amz-Expires is %q", query.Get("X-Amz-Expires"))
	} else if now.After(signed.Add(lifetime)) || signed.After(now.Add(clockLeeway)) {
		return fmt.Errorf("token of %v is valid for %v, it is %v", signed, lifetime, now)
	}
	scope := strings.Split(query.Get("X-Amz-Credential"), "/")
	want := []string{signed.Format("20060102"), g.opts.Region, "dsql", "aws4_request"}
	if len(scope) != 5 || !slices.Equal(scope[1:], want) {
		return fmt.Errorf("scope is %q, not %q", scope, want)
	}
	c, err := g.credential(scope[0], user, now)
	if err != nil {
		return err
	}
	if query.Get("X-Amz-Security-Token") != c.SessionToken {
		return errors.New("session token is another")
	}
	signature := query.Get("X-Amz-Signature")
	query.Del("X-Amz-Signature")
	if subtle.ConstantTimeCompare([]byte(signature), []byte(sign(c.SecretAccessKey, g.opts.Host, query, scope[1:]))) != 1 {
		return errors.New("signature is wrong")
	}
	return nil
}

// credential finds who signed and whether user is open to them.
func (g *Gate) credential(accessKeyID, user string, now time.Time) (Credential, error) {
	i := slices.IndexFunc(g.opts.Credentials, func(c Credential) bool { return c.AccessKeyID == accessKeyID })
	if i < 0 || g.revoked(accessKeyID) {
		return Credential{}, fmt.Errorf("access key %q is unknown", accessKeyID)
	}
	c := g.opts.Credentials[i]
	if !c.Expires.IsZero() && now.After(c.Expires) {
		return Credential{}, fmt.Errorf("access key %q has expired", accessKeyID)
	}
	if len(c.Users) > 0 && !slices.Contains(c.Users, user) {
		return Credential{}, fmt.Errorf("access key %q may not be user %q", accessKeyID, user)
	}
	return c, nil
}

// sign makes the signature of version 4 of a presigned GET of the host's root.
func sign(secret, host string, query url.Values, scope []string) string {
	canonical := strings.Join([]string{
		"GET", "/", strings.ReplaceAll(query.Encode(), "+", "%20"),
		"host:" + host, "", "host", emptyBodyHash,
	}, "\n")
	hash := sha256.Sum256([]byte(canonical))
	text := strings.Join([]string{algorithm, query.Get("X-Amz-Date"), strings.Join(scope, "/"), hex.EncodeToString(hash[:])}, "\n")
	key := []byte("AWS4" + secret)
	for _, part := range scope {
		key = mac(key, part)
	}
	return hex.EncodeToString(mac(key, text))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
