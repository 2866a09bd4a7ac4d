// Command fleetbench measures a fleet of processes on one stand-in of an Aurora
// DSQL cluster: this project's pool with its fleet-wide budgets in DynamoDB, and
// beside it pgxpool as it is and with the settings of AWS's Go connector (not
// the connector itself: pgxpool is what that configures).
//
//	fleetbench burst    8 processes open 50 connections each, at once, and
//	                    replace them faster than the cluster admits
//	fleetbench steady   every connection expires several times under load
//	fleetbench chaos    members are killed and paused, DynamoDB misbehaves
//
// FLEET_SECONDS bounds a story (burst 60, steady 40, chaos 300), FLEET_POOLS
// chooses the pools (dsql,pgxpool,aws-settings).
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	ctx := context.Background()
	if text := os.Getenv(memberVariable); text != "" {
		if err := runMember(ctx, text); err != nil {
			log.Fatal("member: ", err)
		}
		return
	}
	stories := map[string]func(context.Context, *field, time.Duration) error{"burst": burst, "steady": steady, "chaos": chaos}
	seconds := map[string]int{"burst": 60, "steady": 40, "chaos": 300}
	if len(os.Args) < 2 {
		log.Fatal("usage: fleetbench burst|steady|chaos...")
	}
	for _, name := range os.Args[1:] {
		story, known := stories[name]
		if !known {
			log.Fatalf("there is no story %q", name)
		}
		length := seconds[name]
		if text := os.Getenv("FLEET_SECONDS"); text != "" {
			var err error
			if length, err = strconv.Atoi(text); err != nil || length < 1 {
				log.Fatalf("FLEET_SECONDS: %q is no number of seconds", text)
			}
		}
		if err := tell(ctx, story, time.Duration(length)*time.Second); err != nil {
			log.Fatal(name, ": ", err)
		}
	}
}

// tell runs a story on a field of its own.
func tell(ctx context.Context, story func(context.Context, *field, time.Duration) error, length time.Duration) error {
	f, err := newField(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	return story(ctx, f, length)
}

func pools() []string {
	return strings.Split(cmp.Or(os.Getenv("FLEET_POOLS"), "dsql,pgxpool,aws-settings"), ",")
}

func line(format string, args ...any) { fmt.Printf(format+"\n", args...) }
