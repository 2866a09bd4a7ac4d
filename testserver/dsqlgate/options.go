package dsqlgate

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Options describes a gateway. The zero value of a field is DSQL's own figure;
// a negative number turns a limit off.
type Options struct {
	// Upstream is the connection string of the PostgreSQL behind the gateway.
	// Required.
	Upstream string
	// Listen is the address to listen on: "127.0.0.1:0".
	Listen string
	// Host is the name of the cluster, which clients must send by SNI and have
	// in their tokens: a made-up cluster in us-east-1.
	Host string
	// Region is what tokens must be signed for: "us-east-1".
	Region string
	// Credentials lists who may connect. Required.
	Credentials []Credential

	// Rate is how many opens per second are admitted: 100.
	Rate float64
	// Burst is how many opens are admitted at once: 1,000.
	Burst int
	// RefusalsCost says that an attempt refused for its rate costs a token too.
	RefusalsCost bool
	// MaxConns is how many connections may exist: 10,000.
	MaxConns int
	// SessionLimit ends a connection of that age: 60 minutes.
	SessionLimit time.Duration
	// TxLimit ends a transaction of that age: 5 minutes.
	TxLimit time.Duration
	// TxRows is how many rows a transaction may change: 3,000.
	TxRows int
}

// A Credential is somebody who may connect.
type Credential struct {
	AccessKeyID, SecretAccessKey, SessionToken string
	// Expires is when the credential, and with it every token, is void. Zero:
	// never.
	Expires time.Time
	// Users lists the database roles it may take; empty: any.
	Users []string
}

// DefaultHost is the cluster's name when Options.Host is empty.
const DefaultHost = "abcdefghijklmnopqrstuvwxyz.dsql.us-east-1.on.aws"

func (o Options) resolve() (Options, error) {
	o.Listen = cmp.Or(o.Listen, "127.0.0.1:0")
	o.Host = cmp.Or(o.Host, DefaultHost)
	o.Region = cmp.Or(o.Region, "us-east-1")
	o.Rate = cmp.Or(o.Rate, 100)
	o.Burst = cmp.Or(o.Burst, 1000)
	o.MaxConns = cmp.Or(o.MaxConns, 10_000)
	o.SessionLimit = cmp.Or(o.SessionLimit, time.Hour)
	o.TxLimit = cmp.Or(o.TxLimit, 5*time.Minute)
	o.TxRows = cmp.Or(o.TxRows, 3000)
	var faults []error
	if o.Upstream == "" {
		faults = append(faults, errors.New("dsqlgate: Upstream: required"))
	}
	if len(o.Credentials) == 0 {
		faults = append(faults, errors.New("dsqlgate: Credentials: required"))
	}
	for i, c := range o.Credentials {
		if c.AccessKeyID == "" || c.SecretAccessKey == "" {
			faults = append(faults, fmt.Errorf("dsqlgate: Credentials[%d]: access key and secret are required", i))
		}
	}
	return o, errors.Join(faults...)
}
