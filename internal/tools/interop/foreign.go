package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"time"
)

var errSilent = errors.New("it checked nothing")

// foreign runs a client of another maker on duck, and adds its checks to the
// report. When it has gone, the server has to be at rest.
func foreign(client string, cmd *exec.Cmd, duck *server, report *report) error {
	report.heading(client, "duckserver")
	if err := told(client, cmd, report); err != nil {
		return err
	}
	rest := <-duck.watch(time.Second / 2)
	note := fmt.Sprintf("%d ms of processor time in the second after", rest.used.Milliseconds())
	report.add("what it began and left is at an end", rest.used < time.Second/10, note)
	return rest.err
}

// told runs a program that prints a line for each of its checks, and adds them
// to the report.
func told(client string, cmd *exec.Cmd, report *report) error {
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	failed := report.failed
	checks := 0
	for lines := bufio.NewScanner(out); lines.Scan(); checks++ {
		var line struct {
			Check string `json:"check"`
			OK    bool   `json:"ok"`
			Note  string `json:"note"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return fmt.Errorf("%s printed %q: %w", client, lines.Text(), err)
		}
		report.add(line.Check, line.OK, line.Note)
	}
	err = cmd.Wait()
	if checks == 0 || err != nil && report.failed == failed { // one that has told of a failed check ends so, too
		return fmt.Errorf("%s ended after %d checks: %w\n%s", client, checks, cmp.Or(err, errSilent), complaints.String())
	}
	return nil
}
