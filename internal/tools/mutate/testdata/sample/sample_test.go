package sample

import (
	"os"
	"testing"
)

func TestClamp(t *testing.T) {
	if os.Getenv("SAMPLE_FAILS") != "" {
		t.Fatal("it is to fail")
	}
	for _, c := range []struct{ v, limit, want int }{{5, 3, 3}, {0, 3, 0}, {3, 3, 3}} {
		if got, err := Clamp(c.v, c.limit); got != c.want || err != nil {
			t.Fatal(got, err)
		}
	}
	if _, err := Clamp(-1, 3); err == nil {
		t.Fatal("no error")
	}
}

func TestBoth(t *testing.T) {
	if !Both(true, true) {
		t.Fatal()
	}
}

func TestLast(t *testing.T) {
	if Last([]int{1, 2}) != 2 || Last([]int{1, 0, 2}) != 0 {
		t.Fatal()
	}
}

func TestDrain(t *testing.T) {
	if Drain(3) != 0 {
		t.Fatal()
	}
}
