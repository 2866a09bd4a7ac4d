package guard

import "testing"

func TestWhatHasBecomeSlowerIsTold(t *testing.T) {
	ratios = "one theirs 0.50\ntwo theirs 0.50\n"
	var g Guard
	g.Check("one", "theirs", 0.5*room)
	g.Check("new", "theirs", 9)
	g.Check("two", "others", 9)
	if g.slower != 0 {
		t.Error("told of what is as quick as it was, or was not measured before")
	}
	g.Check("two", "theirs", 0.5*room+0.01)
	if g.slower != 1 {
		t.Error("not told")
	}
}
