//go:build !unix

package localdeps

import (
	"os"
	"syscall"
)

// unprivileged has nobody to hand dir to.
func unprivileged(string) (*syscall.SysProcAttr, error) { return nil, nil } //nolint:nilnil // no attributes are the default

// killGroup ends a process. It may be gone already.
func killGroup(p *os.Process) { _ = p.Kill() }

// stand does nothing: there is no such signal.
func stand(int, bool) {}
