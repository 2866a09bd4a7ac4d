package main

import (
	"context"
	"fmt"
	"log"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A story is one thing that happens to a fleet. It tells what was seen, and
// whether the project's claims held.
type story struct {
	tell   func(context.Context, *field, scale, *report) error
	length time.Duration
}

var stories = map[string]story{
	"burst":  {burst, time.Minute},
	"steady": {steady, 2 * time.Minute},
	"drop":   {drop, 15 * time.Second},
	"chaos":  {chaos, 5 * time.Minute},
}

// A scale says how large a story is.
type scale struct {
	processes int
	conns     int // of each process
	length    time.Duration
	pools     []string
	// short stories are shorter than it takes for the figures to mean something:
	// those are no claims.
	short bool
	// brief stories are for a test: short, with short leases.
	brief bool
}

func main() {
	ctx := context.Background()
	if text := os.Getenv(memberVariable); text != "" {
		if err := runMember(ctx, text); err != nil {
			log.Fatal("member: ", err)
		}
		return
	}
	names := slices.Sorted(maps.Keys(stories))
	if len(os.Args) < 2 {
		log.Fatalf("usage: fleetbench %s", strings.Join(names, "|"))
	}
	r := &report{out: os.Stdout}
	if err := run(ctx, os.Args[1:], r); err != nil {
		log.Fatal(err)
	}
	if err := r.verdict(); err != nil {
		log.Fatal("these claims did not hold:\n", err)
	}
	fmt.Println("\nevery claim held")
}

// run tells stories, one after the other, on the same servers.
func run(ctx context.Context, names []string, r *report) error {
	seconds, err := number("FLEET_SECONDS", 0)
	if err != nil {
		return err
	}
	processes, err := number("FLEET_PROCESSES", 8)
	if err != nil {
		return err
	}
	f, err := newField(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	for _, name := range names {
		s, known := stories[name]
		if !known {
			return fmt.Errorf("there is no story %q", name)
		}
		sc := scale{processes: processes, conns: 50, length: s.length, pools: pools}
		if seconds > 0 {
			sc.length = time.Duration(seconds) * time.Second
			sc.short = sc.length < s.length
		}
		if text := os.Getenv("FLEET_POOLS"); text != "" {
			sc.pools = strings.Split(text, ",")
		}
		if err := s.tell(ctx, f, sc, r); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// number is a variable of the environment, or what stands in for it.
func number(name string, otherwise int) (int, error) {
	text := os.Getenv(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s: %q is no positive number", name, text)
	}
	return n, nil
}
