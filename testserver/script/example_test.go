package script_test

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/script"
)

// A statement that the small SQL of the Engine does not have is answered by the test.
func ExampleEngine_On() {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "city", Type: arrow.BinaryTypes.String}}, nil))
	b.Field(0).(*array.StringBuilder).AppendValues([]string{"Berlin", "Lagos"}, nil)
	db := script.New()
	db.On("SELECT city FROM airports", script.Rows(b.NewRecordBatch()))

	server, err := testserver.Start(testserver.Options{Engine: db})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	ctx := context.Background()
	pool, err := flightpool.New(ctx, server.URI(), flightpool.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close(ctx)
	fmt.Println(flightpool.CollectRows[string](pool.Query(ctx, "SELECT city FROM airports WHERE country = 'DE' ORDER BY 1")))
	// Output: [Berlin Lagos] <nil>
}
