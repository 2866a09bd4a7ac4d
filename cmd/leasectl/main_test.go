package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/flightpool/flightpool/lease/dynamolease"
	"github.com/flightpool/flightpool/testserver/localdeps"
)

const table = "leases"

var (
	db      *localdeps.DynamoDB
	command string // this program
)

// asCommand makes this program be the command that it tests.
const asCommand = "LEASECTL_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	os.Exit(prepared(m.Run))
}

// prepared starts a DynamoDB for a run of tests.
func prepared(tests func() int) int {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	var err error
	if command, err = os.Executable(); err == nil {
		db, err = localdeps.StartDynamoDB(ctx)
	}
	if err == nil {
		defer db.Close()
		err = dynamolease.CreateTable(ctx, db.Client(), table)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return tests()
}

// A result is what a run printed, and its exit code.
type result struct {
	out, err string
	code     int
}

// ctl runs the command, in a process of its own, with nothing of this process's
// environment but what is named, and answers what it asks with input.
func ctl(t *testing.T, input string, env []string, args ...string) result {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command, args...)
	cmd.Env = append([]string{
		asCommand + "=1", "HOME=" + t.TempDir(), "AWS_REGION=us-east-1", "AWS_EC2_METADATA_DISABLED=true",
		"AWS_ACCESS_KEY_ID=local", "AWS_SECRET_ACCESS_KEY=" + secret, "AWS_SESSION_TOKEN=" + token,
	}, env...)
	cmd.Stdin = strings.NewReader(input)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// Neither may ever be printed.
const secret, token = "wJalrXUtnFEMI-the-secret", "FwoGZXIvYXdz-the-session-token"
