// Command fleet starts several processes that share one cluster with room for
// fewer connections than they want, and prints who holds what, every second.
// Half way one of them is killed: its room goes to the others after its lease.
//
// What they share is in a DynamoDB table, or in one of PostgreSQL.
//
//	fleet [-members 4] [-want 10] [-limit 24] [-seconds 100] [-store dynamodb|postgres]
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/flightpool/flightpool/lease/dynamolease"
	"github.com/flightpool/flightpool/lease/pglease"
	"github.com/flightpool/flightpool/testserver/dsqlgate"
	"github.com/flightpool/flightpool/testserver/localdeps"
)

type options struct {
	members, want, limit, seconds int
	store                         string
}

func main() {
	ctx := context.Background()
	if settings := os.Getenv(settingsVariable); settings != "" {
		if err := member(ctx, settings, os.Stdin, os.Stdout); err != nil {
			log.Fatal(err)
		}
		return
	}
	var o options
	flag.IntVar(&o.members, "members", 4, "processes")
	flag.IntVar(&o.want, "want", 10, "connections that each wants")
	flag.IntVar(&o.limit, "limit", 24, "connections that the cluster has room for")
	flag.IntVar(&o.seconds, "seconds", 100, "how long")
	flag.StringVar(&o.store, "store", dynamoStore, "where the leases are: "+dynamoStore+" or "+postgresStore)
	flag.Parse()
	if err := run(ctx, o, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run starts the servers and the members, and watches.
func run(ctx context.Context, o options, out io.Writer) error {
	postgres, err := localdeps.StartPostgres(ctx, localdeps.PostgresOptions{})
	if err != nil {
		return err
	}
	defer postgres.Close()
	told := settings{Store: o.store, Want: o.want, Limit: o.limit}
	closeStore, err := startStore(ctx, &told, postgres)
	if err != nil {
		return err
	}
	defer closeStore()
	gate, err := dsqlgate.Start(ctx, dsqlgate.Options{
		Upstream: postgres.DSN(), MaxConns: o.limit,
		Credentials: []dsqlgate.Credential{{AccessKeyID: accessKey, SecretAccessKey: secretKey}},
	})
	if err != nil {
		return err
	}
	defer gate.Close()
	told.Gate, told.Host, told.CA = gate.Addr(), gate.Host(), gate.CA()
	w := &watch{out: out, gate: gate, limit: o.limit, latest: make([]state, o.members)}
	children := make([]*child, o.members)
	for i := range children {
		if children[i], err = start(ctx, w, i, told); err != nil {
			return err
		}
	}
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for second := range o.seconds {
		<-look.C
		if second == o.seconds/2 {
			fmt.Fprintln(out, "member 0 is killed")
			_ = children[0].cmd.Process.Kill() // it can only have ended already
		}
		w.print()
	}
	var errs []error
	for i, c := range children {
		if err := c.stop(); i > 0 {
			errs = append(errs, err)
		}
	}
	fmt.Fprintf(out, "refused by the cluster: %v\n", gate.Stats().Refused)
	return errors.Join(errs...)
}

// startStore makes the table in which the members share the limit.
func startStore(ctx context.Context, told *settings, postgres *localdeps.Postgres) (stop func(), err error) {
	switch told.Store {
	case dynamoStore:
		dynamo, err := localdeps.StartDynamoDB(ctx)
		if err != nil {
			return nil, err
		}
		told.Dynamo = dynamo.Endpoint
		return dynamo.Close, dynamolease.CreateTable(ctx, dynamo.Client(), leaseTable)
	case postgresStore:
		told.Postgres = postgres.DSN()
		db, err := pglease.Connect(ctx, told.Postgres)
		if err != nil {
			return nil, err
		}
		defer db.Close()
		return func() {}, pglease.Setup(ctx, db, leaseTable)
	}
	return nil, fmt.Errorf("-store is %q, must be %s or %s", told.Store, dynamoStore, postgresStore)
}

// A watch knows the latest of every member.
type watch struct {
	out   io.Writer
	gate  *dsqlgate.Gate
	limit int

	mu     sync.Mutex
	latest []state
}

func (w *watch) print() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, s := range w.latest {
		fmt.Fprintf(w.out, "  %d: ready %2d  in use %2d  leases %2d  spare %d ", i, s.Ready, s.InUse, s.Leases, s.Spare)
	}
	fmt.Fprintf(w.out, "  | cluster: %d of %d\n", w.gate.Stats().Live, w.limit)
}

// A child is a member, seen from outside.
type child struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	reading sync.WaitGroup
}

func start(ctx context.Context, w *watch, i int, s settings) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, self)}
	c.cmd.Env = append(os.Environ(), settingsVariable+"="+string(text), "AWS_ACCESS_KEY_ID="+accessKey, "AWS_SECRET_ACCESS_KEY="+secretKey,
		"AWS_SESSION_TOKEN=", "AWS_REGION=us-east-1", "AWS_ENDPOINT_URL_DYNAMODB="+s.Dynamo)
	c.cmd.Stderr = os.Stderr
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	c.reading.Go(func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			var s state
			if json.Unmarshal(lines.Bytes(), &s) == nil {
				w.mu.Lock()
				w.latest[i] = s
				w.mu.Unlock()
			}
		}
		w.mu.Lock()
		w.latest[i] = state{}
		w.mu.Unlock()
	})
	return c, nil
}

// stop lets a member end by itself: it does when its input ends.
func (c *child) stop() error {
	_ = c.stdin.Close() // it may have ended
	c.reading.Wait()
	return c.cmd.Wait()
}
