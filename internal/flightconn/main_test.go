package flightconn

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// net/http reads them once. Nothing that the tests dial is meant by them.
	_ = os.Setenv("HTTPS_PROXY", "http://proxy.invalid:3128")
	_ = os.Setenv("NO_PROXY", "direct.invalid")
	goleak.VerifyTestMain(m)
}
