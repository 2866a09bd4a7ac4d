package cancel_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/flightpool/flightpool/cancel"
)

func ExampleChain_Run() {
	report := cancel.Chain{Steps: []cancel.Step{
		{Name: "ask", Do: func(context.Context) (cancel.Outcome, error) {
			return cancel.Unsupported, errors.New("no such call")
		}},
		{Name: "kill", Do: func(context.Context) (cancel.Outcome, error) {
			return cancel.Confirmed, nil
		}},
	}}.Run(context.Background())
	fmt.Println(report.Confirmed, report.ConfirmedBy, report.Safe())
	// Output: true kill true
}
