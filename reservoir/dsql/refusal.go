package dsql

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// A failureKind is what a failed open means for the next.
type failureKind uint8

const (
	transient   failureKind = iota // try again soon
	rateLimited                    // 53400: the cluster's rate
	connLimited                    // 53300: the cluster's limit
	permanent                      // no open will succeed until somebody changes something
)

// classify returns what the error of an open means, and names the settings to look at.
func classify(err error) (failureKind, string) {
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
		return permanent, "TLS and Host"
	case errors.As(err, &record), strings.Contains(err.Error(), "server refused TLS connection"):
		return permanent, "Host, Port and DirectTLS: the server does not speak TLS as asked"
	case pgconn.Timeout(err):
		return transient, "Host, Port and OpenTimeout"
	}
	return transient, ""
}

func classifyAnswer(pg *pgconn.PgError) (failureKind, string) {
	text := strings.ToLower(pg.Message)
	switch pg.Code {
	case "53400":
		return rateLimited, ""
	case "53300":
		return connLimited, "ConnLimit"
	case "3D000":
		return permanent, "Database"
	case "28000", "28P01":
		return permanent, "User, Region and Credentials"
	case "08006":
		if strings.Contains(text, "access denied") || strings.Contains(text, "authentication failed") {
			return permanent, "User, Region and Credentials"
		}
		if strings.Contains(text, "sni") {
			return permanent, "Host"
		}
	}
	return transient, ""
}
