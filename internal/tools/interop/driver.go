package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// onDrivers runs the pool over drivers in C, which ADBC's driver manager loads
// in a program of its own.
func onDrivers(ctx context.Context, cfg config, report *report) error {
	for _, driver := range []string{"sqlite", "postgresql"} {
		library, missing := findDriver(cfg, driver)
		if missing == "" && driver == "postgresql" {
			missing = needsPostgres()
		}
		if missing != "" {
			fmt.Printf("\nADBC's driver for %s is left out: %s\n", driver, missing)
			continue
		}
		report.heading("pool", "ADBC's driver manager, driver for "+driver)
		if err := told("its driver for "+driver, command(ctx, cfg.drivers, driver, library), report); err != nil {
			return err
		}
	}
	return nil
}

// findDriver is the library of a driver in the virtual environment, or what this
// machine lacks to run it.
func findDriver(cfg config, driver string) (library, missing string) {
	if cfg.drivers == "" {
		return "", "it needs the program of internal/tools/interop/drivers"
	}
	found, err := filepath.Glob(filepath.Join(cfg.venv, "lib", "python3*", "site-packages", "adbc_driver_"+driver, "libadbc_driver_"+driver+".*"))
	if err != nil || len(found) == 0 {
		return "", "it needs the package adbc-driver-" + driver
	}
	return found[0], ""
}

// needsPostgres is what the machine lacks to run PostgreSQL.
func needsPostgres() (missing string) {
	if _, err := exec.LookPath("initdb"); err == nil {
		return ""
	}
	if found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb"); err == nil && len(found) > 0 { // Debian keeps it off PATH
		return ""
	}
	return "it needs PostgreSQL's server"
}
