package dsql

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// A verdict is what a failed open means for the next.
type verdict uint8

const (
	passing  verdict = iota // try again soon
	tooFast                 // 53400: the cluster's rate
	tooMany                 // 53300: the cluster's limit
	hopeless                // no open will succeed until somebody changes something
)

// classify judges the error of an open and names the settings to look at.
func classify(err error) (verdict, string) {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return classifyAnswer(pg)
	}
	var (
		authority   x509.UnknownAuthorityError
		name        x509.HostnameError
		invalid     x509.CertificateInvalidError
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &authority), errors.As(err, &name), errors.As(err, &invalid), errors.As(err, &certificate):
		return hopeless, "TLS and Host"
	case errors.As(err, &record), strings.Contains(err.Error(), "server refused TLS connection"):
		return hopeless, "Host, Port and DirectTLS: the server does not speak TLS as asked"
	case pgconn.Timeout(err):
		return passing, "Host, Port and OpenTimeout"
	}
	return passing, ""
}

func classifyAnswer(pg *pgconn.PgError) (verdict, string) {
	text := strings.ToLower(pg.Message)
	switch pg.Code {
	case "53400":
		return tooFast, ""
	case "53300":
		return tooMany, "ConnLimit"
	case "3D000":
		return hopeless, "Database"
	case "28000", "28P01":
		return hopeless, "User, Region and Credentials"
	case "08006":
		if strings.Contains(text, "access denied") || strings.Contains(text, "authentication failed") {
			return hopeless, "User, Region and Credentials"
		}
		if strings.Contains(text, "sni") {
			return hopeless, "Host"
		}
	}
	return passing, ""
}
