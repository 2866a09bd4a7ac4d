package flightconn

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"strings"
	"time"
)

// jwtExpiry is the moment that a bearer token names as its end, if it is a JSON
// Web Token, and zero if it is none or has ended by our clock already. The
// token is not verified: who presents it only needs to know when to get
// another. Zero means that nothing is known: a wrong clock on this machine must
// not make every connection expire at once, and a number of seconds beyond any
// calendar is no time.
func jwtExpiry(header string) time.Time {
	parts := strings.Split(strings.TrimPrefix(header, "Bearer "), ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}
	}
	var claims struct {
		Exp float64 `json:"exp"` // seconds, with a fraction if the issuer likes
	}
	if json.Unmarshal(body, &claims) != nil || claims.Exp > math.MaxInt32*100 {
		return time.Time{}
	}
	at := time.Unix(int64(claims.Exp), 0)
	if !at.After(time.Now()) {
		return time.Time{}
	}
	return at
}
