module github.com/flightpool/flightpool/internal/bench

go 1.26.0

require (
	github.com/flightpool/flightpool v0.0.0
	github.com/jackc/puddle/v2 v2.2.3
)

require golang.org/x/sync v0.24.0 // indirect

replace github.com/flightpool/flightpool => ../..
