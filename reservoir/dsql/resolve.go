package dsql

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/option"
	"github.com/flightpool/flightpool/lease"
)

// sessionLimit is how long DSQL lets a session live. Its clock starts before
// ours, and no two run alike: sessionMargin is kept from it.
const (
	sessionLimit  = time.Hour
	sessionMargin = time.Minute
)

// connLimit is what a fleet may have of the 10,000 connections of a cluster.
const connLimit = 9_800

// resolve returns c with defaults filled in, or all of its faults.
func (c Config) resolve(env func(string) string) (Config, error) {
	host, region, where := resolveEndpoint(c.Host, c.Region, env)
	c.Host, c.Region = host, region
	fields.Fill(&c)
	c.Logger = callback.Logger(c.Logger)
	var faults []error
	for _, err := range fields.Faults(&c) {
		faults = append(faults, fmt.Errorf("dsql: %w", err))
	}
	return c, errjoin.Join(append(append(faults, c.faults()...), where)...)
}

// limitIsLocal says that ConnLimit is this process's own.
func (c Config) limitIsLocal() bool { return c.Leases == nil && c.LeaseTable == "" }

// faults finds which fields of a resolved configuration contradict each other.
func (c Config) faults() []error {
	fault, faults := option.Collect("dsql: ")
	life, most := c.ReplaceAfter+max(0, c.LifetimeJitter), sessionLimit-sessionMargin
	fault(c.MinIdle > c.MaxSize, "MinIdle: %d is more than MaxSize %d", c.MinIdle, c.MaxSize)
	fault(c.LowWatermark > c.MaxSize, "LowWatermark: %d is more than MaxSize %d", c.LowWatermark, c.MaxSize)
	fault(c.NoWait && (c.OnDemand || c.MinIdle < 1), "NoWait: nothing would ever be opened with OnDemand or without MinIdle")
	fault(c.BadConnWhenEmpty && !c.NoWait, "BadConnWhenEmpty: needs NoWait")
	fault(c.MaxLifetime > most, "MaxLifetime: %v is more than %v, DSQL ends sessions after %v", c.MaxLifetime, most, sessionLimit)
	fault(life > c.MaxLifetime && c.MaxLifetime > 0, "ReplaceAfter: %v with LifetimeJitter is more than MaxLifetime %v", life, c.MaxLifetime)
	shortest := c.MaxLifetime - max(0, c.LifetimeJitter)
	fault(c.GuardWindow >= shortest && c.MaxLifetime > 0, "GuardWindow: %v is not less than MaxLifetime without LifetimeJitter, %v", c.GuardWindow, shortest)
	fault(c.Lease < 0 || c.LeaseGrace < 0 || c.LeaseShards < 0 || c.LeaseBatch < 0, "Lease, LeaseGrace, LeaseShards, LeaseBatch: less than 0")
	fault(c.LeaseStrict && c.Fallback != lease.Pessimistic(), "LeaseStrict: cannot hold with Fallback %v", c.Fallback)
	fault(c.limitIsLocal() && c.ConnLimit >= 1 && c.MaxSize > c.ConnLimit, "MaxSize: %d is more than ConnLimit %d", c.MaxSize, c.ConnLimit)
	return *faults
}

var (
	endpointPattern  = regexp.MustCompile(`\.dsql[^.]*\.([^.]+)\.on\.aws$`)
	clusterPattern   = regexp.MustCompile(`^([a-z0-9]{26})\.dsql[^.]*\.([^.]+)\.on\.aws$`)
	clusterIDPattern = regexp.MustCompile(`^[a-z0-9]{26}$`)
)

// resolveEndpoint finds the endpoint and the region from what is given of either.
func resolveEndpoint(host, region string, env func(string) string) (endpoint, found string, err error) {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	inHost := ""
	if m := endpointPattern.FindStringSubmatch(host); m != nil {
		inHost = m[1]
	}
	found = cmp.Or(region, inHost, regionOf(env))
	if clusterIDPattern.MatchString(host) && found != "" {
		host += ".dsql." + found + ".on.aws"
	}
	var faults []error
	if host == "" {
		faults = append(faults, errors.New("dsql: Host: required (from the environment: CLUSTER_ENDPOINT)"))
	} else if isNoName(host) {
		faults = append(faults, errors.New("dsql: Host: a name is wanted, without scheme, port or path"))
	}
	if found == "" {
		faults = append(faults, errors.New("dsql: Region: not in Host, and neither AWS_REGION nor AWS_DEFAULT_REGION is set, nor does the AWS profile name one"))
	}
	return host, found, errjoin.Join(faults...)
}

// isNoName reports whether a host is something else than a name. It may hold a password.
func isNoName(host string) bool { return strings.ContainsAny(host, "/:?#@ ") }

// regionOf is the region that the environment names.
func regionOf(env func(string) string) string {
	return cmp.Or(env("AWS_REGION"), env("AWS_DEFAULT_REGION"))
}

// regionFromProfile finds the region in the AWS profile, where nothing else names one.
func (c Config) regionFromProfile(ctx context.Context, env func(string) string) (Config, error) {
	if c.Region != "" || regionOf(env) != "" || endpointPattern.MatchString(strings.ToLower(strings.TrimSuffix(c.Host, "."))) {
		return c, nil
	}
	account, err := awsConfig(ctx, c)
	c.Region = account.Region
	return c, err
}

// budgetName names the limits of a cluster, which has several names: one for its
// public endpoint and one for each of its private ones.
func budgetName(host, region string) string {
	if m := clusterPattern.FindStringSubmatch(host); m != nil {
		return m[1] + "." + m[2]
	}
	if region != "" && clusterIDPattern.MatchString(host) {
		return host + "." + region
	}
	return host
}
