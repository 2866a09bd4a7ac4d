package caller

import "testing"

func TestNext(t *testing.T) {
	if Next(1) != 2 {
		t.Fatal(Next(1))
	}
}
