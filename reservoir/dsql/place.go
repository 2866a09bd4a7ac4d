package dsql

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"strings"
)

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
	} else if strings.ContainsAny(host, "/:?#@ ") {
		faults = append(faults, errors.New("dsql: Host: a name is wanted, without scheme, port or path"))
	}
	if found == "" {
		faults = append(faults, errors.New("dsql: Region: not in Host, and neither AWS_REGION nor AWS_DEFAULT_REGION is set, nor does the AWS profile name one"))
	}
	return host, found, errors.Join(faults...)
}

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
