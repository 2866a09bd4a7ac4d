package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/flightpool/flightpool/lease/dynamolease"
	"github.com/flightpool/flightpool/testserver/dsqlgate"
	"github.com/flightpool/flightpool/testserver/localdeps"
)

const (
	table     = "fleet"
	accessKey = "AKIDFLEET"
	secret    = "fleet-secret"
)

// A field is the servers that all stories share.
type field struct {
	postgres *localdeps.Postgres
	dynamo   *localdeps.DynamoDB
	proxy    *localdeps.Proxy
	self     string // this program
}

func newField(ctx context.Context) (*field, error) {
	f := &field{}
	var err error
	if f.self, err = os.Executable(); err != nil {
		return nil, err
	}
	if f.postgres, err = localdeps.StartPostgres(ctx, localdeps.PostgresOptions{MaxConnections: 600}); err != nil {
		return nil, err
	}
	if f.dynamo, err = localdeps.StartDynamoDB(ctx); err != nil {
		f.close()
		return nil, err
	}
	f.proxy = localdeps.StartProxy(f.dynamo.Endpoint)
	if err := dynamolease.CreateTable(ctx, f.dynamo.Client(), table); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *field) close() {
	if f.proxy != nil {
		f.proxy.Close()
	}
	if f.dynamo != nil {
		f.dynamo.Close()
	}
	f.postgres.Close()
}

// gate starts a cluster. Its name is the budget, so each has its own.
func (f *field) gate(ctx context.Context, name string, set func(*dsqlgate.Options)) (*dsqlgate.Gate, error) {
	o := dsqlgate.Options{
		Upstream: f.postgres.DSN(), Host: name + ".dsql.us-east-1.on.aws",
		Credentials: []dsqlgate.Credential{{AccessKeyID: accessKey, SecretAccessKey: secret}},
	}
	set(&o)
	return dsqlgate.Start(ctx, o)
}

// A process is one member of the fleet.
type process struct {
	cmd *exec.Cmd
	out bytes.Buffer
}

// kill is kill -9, also of a process that stands still.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it can only have ended by itself
	_ = p.cmd.Wait()         // an error says that it was killed
}

// spawn starts a member.
func (f *field) spawn(ctx context.Context, g *dsqlgate.Gate, m member) (*process, error) {
	m.Gate, m.Host, m.CA = g.Addr(), g.Host(), g.CA()
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, f.self)}
	p.cmd.Env = append(os.Environ(), memberVariable+"="+string(text), "AWS_ENDPOINT_URL_DYNAMODB="+f.proxy.URL,
		"AWS_ACCESS_KEY_ID="+accessKey, "AWS_SECRET_ACCESS_KEY="+secret, "AWS_REGION=us-east-1", "AWS_EC2_METADATA_DISABLED=true")
	p.cmd.Stdout, p.cmd.Stderr = &p.out, os.Stderr
	return p, p.cmd.Start()
}

// result waits for a member's end.
func (p *process) result() (result, error) {
	var r result
	if err := p.cmd.Wait(); err != nil {
		return r, err
	}
	return r, json.Unmarshal(p.out.Bytes(), &r)
}

// run starts n members and joins their results.
func (f *field) run(ctx context.Context, g *dsqlgate.Gate, n int, m member) (result, error) {
	processes := make([]*process, n)
	for i := range processes {
		var err error
		if processes[i], err = f.spawn(ctx, g, m); err != nil {
			return result{}, fmt.Errorf("start of a member: %w", err)
		}
	}
	var sum result
	var errs []error
	for _, p := range processes {
		r, err := p.result()
		errs = append(errs, err)
		sum.add(r)
	}
	return sum, errors.Join(errs...)
}

// settled claims that a fleet of our pool has left nothing behind, and that none
// of its members took another for dead.
func (f *field) settled(ctx context.Context, r *report, what string, g *dsqlgate.Gate, m member, seen result) error {
	leases, err := dynamolease.New(ctx, f.dynamo.Client(), dynamolease.Config{Table: table, Budget: g.Host(), Limit: m.Limit})
	if err != nil {
		return err
	}
	left := leases.Stats().Used
	r.claim(!seen.CloseFailed, "%s: a member could not close", what)
	r.claim(left == 0, "%s: %d leases are in use by nobody", what, left)
	r.claim(g.Stats().Live == 0, "%s: %d connections are open yet", what, g.Stats().Live)
	r.claim(seen.Losses == 0 && seen.Reaped == 0, "%s: %d members lost their leases, %d were freed as dead", what, seen.Losses, seen.Reaped)
	return leases.Close(ctx)
}
