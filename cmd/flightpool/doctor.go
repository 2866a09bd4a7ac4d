package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flightpool/flightpool/cmd/flightpool/internal/doctor"
	"github.com/flightpool/flightpool/flightpool"
)

const doctorHelp = `Find out what a server does, by trying it: authentication, sessions and what they
are bound to, whether transactions are honest, whether a cancel stops a statement,
parameters, ingestion, the largest request; and the Config of a pool that suits it.

It creates temporary tables, and one table flightpool_doctor_… that it drops. With
--readonly it creates nothing, and finds out less. It stops a query that takes
seconds; on a server that cannot stop it, that runs to its end.`

func (a *app) doctorCommand() *cobra.Command {
	var opts doctor.Options
	var asJSON, asGo bool
	c := &cobra.Command{
		Use: "doctor URL", Short: "find out what a server does, and which settings suit it", Long: doctorHelp,
		Args: oneServer,
		RunE: func(c *cobra.Command, args []string) error {
			if asJSON && asGo {
				return usageError("--json and --go exclude each other")
			}
			return a.doctor(c.Context(), args, opts, asJSON, asGo)
		},
	}
	flags := c.Flags()
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	flags.BoolVar(&asGo, "go", false, "print Go that makes the pool")
	flags.BoolVar(&opts.ReadOnly, "readonly", false, "create no table")
	flags.DurationVar(&opts.Idle, "idle", 0, "leave a session alone for so long, to see whether it stays")
	flags.StringVar(&opts.Slow, "slow", "", "query that takes some seconds, where none is found for the cancel")
	return c
}

func (a *app) doctor(ctx context.Context, args []string, opts doctor.Options, asJSON, asGo bool) error {
	var err error
	if opts.Target, opts.Config, err = a.config(ctx, args); err != nil {
		return err
	}
	out := a.reportWriter()
	if !asJSON && !asGo {
		opts.Found = func(f doctor.Finding) { f.Text(out) }
	}
	ctx, stop := a.interruptible(ctx)
	defer stop()
	report, err := doctor.Examine(ctx, opts)
	switch {
	case err != nil && ctx.Err() != nil:
		return interruption(ctx)
	case err != nil:
		return &failure{exitConnect, err}
	case asJSON:
		text, err := json.Marshal(report)
		fmt.Fprintf(out, "%s\n", text)
		return errors.Join(err, out.err)
	case asGo:
		fmt.Fprint(out, report.Go(a.entrance(opts.Config)))
		return out.err
	}
	for _, s := range report.Settings {
		fmt.Fprintf(out, "%-16s %-14s %s: %s\n", "Config", s.Field, s.Go, s.Why)
	}
	return out.err
}

// entrance is what the command line says of the user and of whom to trust, as Go source
// without secrets: each stands in a variable of the environment.
func (a *app) entrance(cfg flightpool.Config) doctor.Entrance {
	var by doctor.Entrance
	if auth := a.goAuth(cfg); auth != "" {
		by.Fields = append(by.Fields, "Auth: "+auth)
	}
	var trust []string
	if t := &a.target; t.tlsCA != "" {
		by.Before += fmt.Sprintf("authority, err := os.ReadFile(%q)\nif err != nil {\nreturn err\n}\n", t.tlsCA) +
			fmt.Sprintf("roots := x509.NewCertPool()\nif !roots.AppendCertsFromPEM(authority) {\nreturn errors.New(%q)\n}\n", t.tlsCA+" has no certificate")
		trust = append(trust, "RootCAs: roots")
	}
	if t := &a.target; t.tlsCert != "" {
		by.Before += fmt.Sprintf("mine, err := tls.LoadX509KeyPair(%q, %q)\nif err != nil {\nreturn err\n}\n", t.tlsCert, cmp.Or(t.tlsKey, t.tlsCert))
		trust = append(trust, "Certificates: []tls.Certificate{mine}")
	}
	if cfg.TLS != nil && cfg.TLS.InsecureSkipVerify {
		trust = append(trust, "InsecureSkipVerify: true")
	}
	if len(trust) > 0 {
		by.Fields = append(by.Fields, "TLS: &tls.Config{"+strings.Join(trust, ", ")+"}")
	}
	var headers []string
	for _, name := range slices.Sorted(maps.Keys(cfg.Headers)) {
		variable := "HEADER_" + strings.NewReplacer("-", "_", ".", "_").Replace(strings.ToUpper(name))
		values := make([]string, len(cfg.Headers[name]))
		for i := range values {
			if i > 0 {
				variable += "_AGAIN"
			}
			values[i] = fmt.Sprintf("os.Getenv(%q)", variable)
		}
		headers = append(headers, fmt.Sprintf("%q: {%s}", name, strings.Join(values, ", ")))
	}
	if len(headers) > 0 {
		by.Fields = append(by.Fields, "Headers: metadata.MD{"+strings.Join(headers, ", ")+"}")
	}
	return by
}

// goAuth is who the user is, as Go source.
func (a *app) goAuth(cfg flightpool.Config) string {
	user := a.target.user
	if name, _ := urlUser(a.target.url); user == "" && a.target.tokenFile == "" {
		user = name
	}
	switch {
	case user != "" && a.target.basicHeader:
		return fmt.Sprintf("flightpool.BasicHeader(%q, os.Getenv(%q))", user, passwordVariable)
	case user != "":
		return fmt.Sprintf("flightpool.BasicAuth(%q, os.Getenv(%q))", user, passwordVariable)
	case cfg.Auth.String() != (flightpool.Auth{}).String(): // a token, wherever it is from
		return fmt.Sprintf("flightpool.BearerAuth(os.Getenv(%q))", tokenVariable)
	}
	return ""
}
