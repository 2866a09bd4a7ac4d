package main

import (
	"bytes"
	"context"
	"log"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The members are this test's program again.
func TestMain(m *testing.M) {
	if text := os.Getenv(memberVariable); text != "" {
		if err := runMember(context.Background(), text); err != nil {
			log.Fatal("member: ", err)
		}
		return
	}
	os.Exit(m.Run())
}

// The stories with a small fleet and little time. What depends on the speed of
// the machine is printed and not judged.
func TestTheClaimsHoldOfASmallFleet(t *testing.T) {
	f, err := newField(t.Context())
	require.NoError(t, err)
	defer f.close()
	for _, name := range []string{"burst", "steady", "drop", "chaos"} {
		t.Run(name, func(t *testing.T) {
			s := scale{processes: 3, conns: 20, length: 3 * time.Second, pools: []string{"dsql"}, brief: true}
			if name == "steady" || name == "drop" {
				s.length = 6 * time.Second
			}
			var out bytes.Buffer
			r := &report{out: &out}
			require.NoError(t, stories[name].tell(t.Context(), f, s, r))
			t.Log(out.String())
			require.NoError(t, r.verdict())
		})
	}
}

func TestAClaimThatDoesNotHoldIsAnError(t *testing.T) {
	r := &report{}
	r.claim(true, "this holds")
	r.figure(scale{brief: true}, false, "this depends on the machine")
	require.NoError(t, r.verdict())
	r.claim(false, "%d is more than %d", 61, 60)
	r.figure(scale{}, false, "too slow")
	require.EqualError(t, r.verdict(), "61 is more than 60\ntoo slow")
}
