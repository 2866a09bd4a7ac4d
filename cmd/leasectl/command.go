package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// tableVariable names the table for processes that take dsql.ConfigFromEnv, and
// so for this command.
const tableVariable = "DSQL_DISTRIBUTED_CONN_LEASE_TABLE"

const rootHelp = `leasectl shows and changes the budgets of connections that a fleet of processes
shares: who holds how many leases, the limit, and how fast permits to open
connections are granted.

The table is --table, or DSQL_DISTRIBUTED_CONN_LEASE_TABLE. Region and
credentials are those of the AWS SDK (AWS_REGION, AWS_PROFILE, ~/.aws and so on)
unless flags name others. With --postgres the table is one of PostgreSQL.

To show a budget needs dynamodb:GetItem and dynamodb:BatchGetItem; to find the
budgets of a table without --budget, dynamodb:Scan; limit and free need
dynamodb:UpdateItem besides. In PostgreSQL: SELECT; limit and free need INSERT,
UPDATE and DELETE besides.

Exit codes:
  0  done
  1  any other failure, and an interruption before a change was sent
  2  the command line is wrong
  3  no such table, budget or process
  4  refused: the limit is below what is held or the number of shards, or free was not confirmed
  5  no permission, or no valid credentials
  6  the table does not answer in time, or the outcome of a change is unknown`

func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use: "leasectl", Short: "show and change the budgets of connections that a fleet shares", Long: rootHelp,
		SilenceUsage: true, SilenceErrors: true, SuggestionsMinimumDistance: 2,
		Args: oneOfTheCommands, RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			a.target.tableGiven = c.Flags().Changed("table")
			if a.timeout <= 0 {
				return fmt.Errorf("--timeout is %v, must be positive", a.timeout)
			}
			a.parsed = true
			return nil
		},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
	flags := root.PersistentFlags()
	a.target.bind(root)
	flags.StringVarP(&a.budget, "budget", "b", "", "name of the budget (default: the only one of the table; show: all)")
	flags.DurationVar(&a.timeout, "timeout", 10*time.Second, "how long to wait for the table")
	flags.BoolVar(&a.json, "json", false, "print JSON")
	root.AddCommand(a.showCommand(), a.limitCommand(), a.freeCommand())
	return root
}

// oneOfTheCommands refuses what was meant to be a command. It prints no argument, as
// exactly does: there may be a password in it, of a connection string without its flag.
func oneOfTheCommands(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		return fmt.Errorf("there is no such command; did you mean %s?", strings.Join(near, " or "))
	}
	return errors.New("there is no such command; those there are: show, limit, free")
}

// exactly refuses other numbers of arguments than 0 or 1, and says what is wanted.
func exactly(n int, wanted string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		return fmt.Errorf("%s takes %s and was given %d: %s", c.Name(), [...]string{"no argument", "one argument"}[n], len(args), wanted)
	}
}

// withStore does what a command is for, on the store that its flags name.
func (a *app) withStore(c *cobra.Command, do func(ctx context.Context, src *source) error) error {
	ctx, cancel := a.withTimeout(c.Context())
	src, err := a.open(ctx, a.target)
	cancel()
	if err != nil {
		return err
	}
	defer src.close()
	return do(c.Context(), src)
}

func (a *app) showCommand() *cobra.Command {
	var watch, sample time.Duration
	c := &cobra.Command{
		Use: "show", Short: "show who holds what",
		Long: `Show each budget of the table, or that of --budget: used and limit, the share of a
process while the fleet is short, permits granted per second, and its processes.

ROUND tells how many rounds a process has not checked in to. A round begins every
0.37 Lease (22s by default), in large fleets that are not short less often; a
process is asked to check in within 0.45 Lease. One that is 1 behind may do so any
moment, one that is 2 behind is dead or cut off.

Permits per second are what was granted during --sample, or since the last time
with --watch. They are granted in batches, ahead of time: a short sample is
coarse.`,
		Example: `  leasectl show --table leases
  leasectl show --table leases --budget abcdefghijklmnopqrstuvwxyz.eu-west-1 --watch 2s
  leasectl show --table leases --json | jq '.budgets[].members[] | select(.rounds_behind > 1)'`,
		Args: exactly(0, "what is shown is named by --budget, where by --table or --postgres"),
		PreRunE: func(*cobra.Command, []string) error {
			if watch < 0 || sample < 0 {
				return &failure{exitUsage, errors.New("--watch and --sample must not be negative")}
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withStore(c, func(ctx context.Context, src *source) error {
				if watch > 0 {
					return a.watch(ctx, src, watch)
				}
				return a.show(ctx, src, sample)
			})
		},
	}
	c.Flags().DurationVar(&watch, "watch", 0, "show again every so often, for example 2s, until interrupted")
	c.Flags().DurationVar(&sample, "sample", time.Second, "how long to count permits; 0: not at all")
	return c
}

func (a *app) limitCommand() *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use: "limit N", Short: "change the limit of a budget",
		Long: `Change how many connections the fleet may have. Every process follows within a
sixth of Lease (10s by default), and so does every process that starts later,
whatever limit it is configured with.

A limit below what is held is refused without --force: nothing would be revoked,
but nothing granted until the fleet is below it. It cannot be below the number of
shards.`,
		Example: `  leasectl limit 9000 --table leases
  leasectl limit 500 --table leases --budget orders --force`,
		Args: exactly(1, "the limit"),
		RunE: func(c *cobra.Command, args []string) error {
			limit, err := strconv.ParseInt(args[0], 10, 32)
			if err != nil || limit <= 0 {
				return &failure{exitUsage, fmt.Errorf("the limit must be a whole number from 1 to %d", math.MaxInt32)}
			}
			return a.withStore(c, func(ctx context.Context, src *source) error { return a.limit(ctx, src, int(limit), force) })
		},
	}
	c.Flags().BoolVar(&force, "force", false, "set a limit that is below what is held, too")
	return c
}

func (a *app) freeCommand() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "free ID", Short: "take the leases of a process away at once",
		Long: `Take the leases of a process away, whose ID show tells, and give them to the rest
of the fleet at once. The leases of a process that died come back by themselves
within Lease and Grace (80s by default).

free is for a process that is known to be gone. If it lives, it goes on using its
connections until it learns of this, and then claims leases for all of them again,
beyond the limit if need be; if that overruns the limit, it closes them all and
opens others. Until then its connections come on top of the limit.`,
		Example: `  leasectl free 4XJZQ2N7KA --table leases
  leasectl free 4XJZQ2N7KA --table leases --budget orders --yes`,
		Args: exactly(1, "the ID of a process, which show tells"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withStore(c, func(ctx context.Context, src *source) error { return a.free(ctx, src, args[0], yes) })
		},
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}
