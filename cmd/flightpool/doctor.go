package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/flightpool/flightpool/cmd/flightpool/internal/doctor"
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
		fmt.Fprint(out, report.Go(a.goAuth()))
		return out.err
	}
	for _, s := range report.Settings {
		fmt.Fprintf(out, "%-16s %-14s %s: %s\n", "Config", s.Field, s.Go, s.Why)
	}
	return out.err
}

// goAuth is who the user is, as Go source without secrets.
func (a *app) goAuth() string {
	user := a.target.user
	if u, err := url.Parse(a.target.url); err == nil && u.User != nil && user == "" {
		user = u.User.Username()
	}
	switch {
	case user != "" && a.target.basicHeader:
		return fmt.Sprintf("flightpool.BasicHeader(%q, os.Getenv(%q))", user, passwordVariable)
	case user != "":
		return fmt.Sprintf("flightpool.BasicAuth(%q, os.Getenv(%q))", user, passwordVariable)
	case a.target.tokenFile != "" || a.getenv(tokenVariable) != "":
		return fmt.Sprintf("flightpool.BearerAuth(os.Getenv(%q))", tokenVariable)
	}
	return ""
}
